// Package path finds out how long a path keeps an idle TCP connection. Devices such as NAT, load
// balancers and firewalls forget a connection that is silent for long, and seldom tell its ends.
//
// # Algorithm
//
// Find opens connections to an echo server and leaves each of them silent for a different duration.
// The durations double. After its silence a connection sends a line and waits for the echo. When a
// duration fails, the gap between it and the longest one that survived is divided in eight, and
// again, until it is small enough. The durations of a round run at the same time.
//
// A FIN during the silence comes from the server, or from a proxy in its place: then the idle
// timeout of the server hides what the path would do.
package path

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/idlewheel/idlewheel/loadtest/internal/witness"
)

// parts is the number of parts into which a round divides the gap.
const parts = 8

// Config is what to try.
type Config struct {
	Target    string        // host:port of an echo server
	From, To  time.Duration // shortest and longest silence
	Parallel  int           // connections per duration; all of them must survive
	Precision time.Duration // the gap at which the search ends
	Patience  time.Duration // longest wait for a connection or an echo
	Progress  io.Writer     // gets a line after each duration
}

// An Outcome is what became of a connection after its silence.
type Outcome string

const (
	Survived      Outcome = "survived"
	Dropped       Outcome = "silently dropped"         // no answer
	Reset         Outcome = "reset by the next packet" // the answer was an RST
	ResetInTime   Outcome = "reset during the silence"
	ClosedInTime  Outcome = "closed by the server during the silence" // a FIN arrived
	ClosedByWrite Outcome = "closed by the server after the silence"  // a FIN was the answer
)

// A Try is a duration of silence and its outcome.
type Try struct {
	Silence time.Duration `json:"silence_ns"`
	// Ended is when the first connection ended, 0 if all survived. It is less than Silence if the end
	// of a connection was seen during the silence.
	Ended    time.Duration   `json:"ended_ns,omitempty"`
	Outcomes map[Outcome]int `json:"outcomes"`
	How      Outcome         `json:"how"` // Survived, or the outcome of the first that ended
}

// A Report is the outcome of a search.
type Report struct {
	Schema      int           `json:"schema"` // version of these fields
	Target      string        `json:"target"`
	Began       time.Time     `json:"began"`
	Took        time.Duration `json:"took_ns"`
	Interrupted bool          `json:"interrupted,omitempty"`
	Parallel    int           `json:"parallel"` // connections per try

	Survived time.Duration `json:"survived_ns"`      // longest silence; 0 if none survived
	Failed   time.Duration `json:"failed_ns"`        // shortest silence; 0 if none failed
	How      Outcome       `json:"how,omitempty"`    // of Failed
	Server   bool          `json:"server,omitempty"` // the server, not the path, ended the connection
	// Heartbeat is the longest interval to use, jitter included; 0 if none is known to suffice.
	Heartbeat time.Duration `json:"heartbeat_ns"`

	Tries []Try    `json:"tries"` // shortest first
	Notes []string `json:"notes,omitempty"`
}

// Find tries silences until the gap is small enough or the context ends. It returns an error if no
// connection can be opened, or if the target does not echo.
func Find(ctx context.Context, c Config) (*Report, error) {
	r := &Report{Schema: 1, Target: c.Target, Began: time.Now(), Parallel: c.Parallel}
	var silences []time.Duration
	for d := c.From; d < c.To; d *= 2 {
		silences = append(silences, d)
	}
	silences = append(silences, c.To)
	for len(silences) > 0 {
		if err := r.round(ctx, c, silences); err != nil {
			if len(r.Tries) == 0 {
				return nil, err
			}
			r.Notes = append(r.Notes, "the search ended early: "+err.Error())
			break
		}
		silences = nil
		if gap := r.Failed - r.Survived; gap > c.Precision && !r.How.timed() && ctx.Err() == nil {
			for i := range time.Duration(parts - 1) {
				silences = append(silences, r.Survived+gap*(i+1)/parts)
			}
		}
	}
	r.Took, r.Interrupted = time.Since(r.Began), ctx.Err() != nil
	r.advise()
	return r, nil
}

// timed reports whether the end of the connection was seen when it happened.
func (o Outcome) timed() bool { return o == ClosedInTime || o == ResetInTime }

// round tries all silences at the same time, and cancels those longer than one that failed. It
// returns an error if a connection proves nothing.
func (r *Report) round(ctx context.Context, c Config, silences []time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	running := slices.Clone(silences)
	for _, silence := range silences {
		t, left := Try{Silence: silence, Outcomes: map[Outcome]int{}, How: Survived}, c.Parallel
		probe := func() error {
			outcome, ended, err := c.probe(ctx, silence)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case ctx.Err() != nil: // its end would have caused the error
				return nil
			case err != nil:
				return err
			}
			t.Outcomes[outcome]++
			if outcome != Survived && (t.Ended == 0 || ended < t.Ended) {
				t.Ended, t.How = ended, outcome
			}
			if left--; left > 0 {
				return nil
			}
			r.take(t)
			fmt.Fprintf(c.Progress, "%10s silent: %s\n", silence.Round(time.Millisecond), t.How)
			running = slices.DeleteFunc(running, func(d time.Duration) bool { return d == silence })
			if r.Failed > 0 && !slices.ContainsFunc(running, func(d time.Duration) bool { return d < r.Failed }) {
				cancel()
			}
			return nil
		}
		for range c.Parallel {
			all.Go(probe)
		}
	}
	return all.Wait()
}

// take adds a complete try to the result.
func (r *Report) take(t Try) {
	r.Tries = append(r.Tries, t)
	if at := min(t.Silence, t.Ended); t.How != Survived && (r.Failed == 0 || at < r.Failed) {
		r.Failed, r.How = at, t.How
	}
	r.Survived = 0
	for _, t := range r.Tries {
		if t.How == Survived && (r.Failed == 0 || t.Silence < r.Failed) {
			r.Survived = max(r.Survived, t.Silence)
		}
	}
}

// probe opens a connection, leaves it silent, and says what became of it and when. The end of the
// context closes it.
func (c Config) probe(ctx context.Context, silence time.Duration) (o Outcome, ended time.Duration, err error) {
	dialer := net.Dialer{Timeout: c.Patience, KeepAlive: -1} // a keepalive probe would end the silence
	conn, err := dialer.DialContext(ctx, "tcp", c.Target)
	if err != nil {
		return "", 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(c.Patience))
	if err := echo(conn); err != nil {
		return "", 0, fmt.Errorf("the target does not echo a line: %w", err)
	}
	silent := time.Now()
	_ = conn.SetReadDeadline(silent.Add(silence))
	n, err := conn.Read(make([]byte, 512))
	ended = time.Since(silent)
	if n > 0 { // a goodbye, if the close follows
		_ = conn.SetReadDeadline(time.Now().Add(goodbye))
		if _, err = io.Copy(io.Discard, conn); err == nil {
			err = io.EOF
		}
	}
	switch {
	case n > 0 && errors.Is(err, os.ErrDeadlineExceeded):
		return "", 0, errors.New("the target sends without a request, so its connections are not silent")
	case errors.Is(err, io.EOF):
		return ClosedInTime, ended, nil
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return ResetInTime, ended, nil
	}
	_ = conn.SetDeadline(time.Now().Add(c.Patience))
	switch err := echo(conn); {
	case err == nil:
		return Survived, ended, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Dropped, ended, nil
	case errors.Is(err, io.EOF):
		return ClosedByWrite, ended, nil
	}
	return Reset, ended, nil
}

// goodbye is the longest time from the last words of a target to its close.
const goodbye = time.Second

// echo sends a line and waits for it.
func echo(conn net.Conn) error {
	line := fmt.Sprintf("loadtest path %d\n", time.Now().UnixNano())
	if _, err := io.WriteString(conn, line); err != nil {
		return err
	}
	got, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && got != line {
		err = errors.New("another line arrived")
	}
	return err
}

// advise fills in the heartbeat and the notes. It follows "The rule" in docs/limits.md.
func (r *Report) advise() {
	slices.SortFunc(r.Tries, func(a, b Try) int { return cmp.Compare(a.Silence, b.Silence) })
	r.Server = r.How == ClosedInTime || r.How == ClosedByWrite
	limit := r.Survived
	if r.How.timed() {
		limit = r.Failed
	}
	r.Heartbeat = limit / 2
	if r.Server {
		r.Heartbeat = witness.Heartbeat(limit)
	}
	if r.Survived == 0 && r.Failed > 0 && !r.How.timed() {
		r.Notes = append(r.Notes, "no silence survived: the target may answer one line only")
	}
	for _, t := range r.Tries {
		if t.How == Survived && r.Failed > 0 && t.Silence > r.Failed {
			r.Notes = append(r.Notes, fmt.Sprintf("a silence of %v survived, although a shorter one did not: the path may have several devices", t.Silence))
		}
		if n := t.Outcomes[Survived]; n > 0 && t.How != Survived {
			r.Notes = append(r.Notes, fmt.Sprintf("a silence of %v counts as failed, although %d of %d connections survived it", t.Silence, n, r.Parallel))
		}
	}
}

// Write writes the report as text.
func (r *Report) Write(out io.Writer) {
	fmt.Fprintf(out, "\npath to %s, %d connections per silence, %s\n\n", r.Target, r.Parallel, r.Took.Round(time.Second))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name string, d time.Duration, remark string) {
		text := "none"
		if d > 0 {
			text = d.Round(time.Millisecond).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", name, text, remark)
	}
	line("longest silence that survived", r.Survived, "")
	line("shortest silence that did not", r.Failed, string(r.How))
	remark := "half of that; the path may allow more"
	switch {
	case r.Heartbeat == 0:
		remark = ""
	case r.Server:
		remark = "three of them fit in the idle timeout of the server, with a second to spare"
	case r.Failed > 0:
		remark = "half of that: one late heartbeat does no harm"
	}
	line("heartbeat at most every", r.Heartbeat, remark)
	_ = w.Flush()
	fmt.Fprintln(out, "\njitter included; the rule is in docs/limits.md#the-rule")
	if r.Server {
		fmt.Fprintln(out, "the server, or a proxy in its place, ended the connection: the path keeps one for longer than that")
	}
	for _, n := range r.Notes {
		fmt.Fprintln(out, n)
	}
	if r.Interrupted {
		fmt.Fprintln(out, "interrupted: this is what was known by then")
	}
}
