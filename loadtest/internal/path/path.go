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
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"time"
)

// Schema is the version of the JSON of a Report.
const Schema = 1

// parts is the number of parts into which a round divides the gap.
const parts = 8

// Config is what to try.
type Config struct {
	Target    string        // host:port of an echo server
	From, To  time.Duration // shortest and longest silence
	Parallel  int           // connections per duration; all of them must survive
	Precision time.Duration // the gap at which the search ends
	Patience  time.Duration // longest wait for a connection or an echo
	// Progress is called after each duration. It may be nil.
	Progress func(Try)
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
	cancelled     Outcome = "cancelled"
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

// probe is one connection of a Try.
type probe struct {
	silence, ended time.Duration
	outcome        Outcome
	err            error // the connection proves nothing
}

// Find tries silences until the gap is small enough or the context ends. It returns an error if no
// connection can be opened, or if the target does not echo.
func Find(ctx context.Context, c Config) (*Report, error) {
	r := &Report{Schema: Schema, Target: c.Target, Began: time.Now(), Parallel: c.Parallel}
	var silences []time.Duration
	for d := c.From; d < c.To; d *= 2 {
		silences = append(silences, d)
	}
	silences = append(silences, c.To)
	for len(silences) > 0 {
		err := r.round(ctx, c, silences)
		if err != nil && len(r.Tries) == 0 {
			return nil, err
		}
		silences = nil
		if err != nil {
			r.Notes = append(r.Notes, "the search ended early: "+err.Error())
		} else if gap := r.Failed - r.Survived; gap > c.Precision && !r.How.timed() && ctx.Err() == nil {
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

// round tries all silences at the same time, and cancels those longer than one that failed.
func (r *Report) round(ctx context.Context, c Config, silences []time.Duration) (failure error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan probe)
	tries := map[time.Duration]*Try{}
	for _, d := range silences {
		tries[d] = &Try{Silence: d, Outcomes: map[Outcome]int{}, How: Survived}
		for range c.Parallel {
			go func() { results <- c.probe(ctx, d) }()
		}
	}
	for range len(silences) * c.Parallel {
		p := <-results
		t := tries[p.silence]
		if t.add(p); p.err != nil && ctx.Err() == nil { // the end of the context would have caused it
			failure = p.err
			cancel()
		}
		if t.complete(c.Parallel) {
			r.take(*t)
			if c.Progress != nil {
				c.Progress(*t)
			}
		}
		shorter := func(t *Try) bool { return t.Silence < r.Failed && !t.complete(c.Parallel) }
		if r.Failed > 0 && !slices.ContainsFunc(slices.Collect(maps.Values(tries)), shorter) {
			cancel()
		}
	}
	return failure
}

// complete reports whether all connections have ended, and none of them was cancelled.
func (t *Try) complete(parallel int) bool {
	n := 0
	for _, of := range t.Outcomes {
		n += of
	}
	return n == parallel && t.Outcomes[cancelled] == 0
}

// add adds a connection.
func (t *Try) add(p probe) {
	t.Outcomes[p.outcome]++
	if p.outcome != Survived && (t.Ended == 0 || p.ended < t.Ended) {
		t.Ended, t.How = p.ended, p.outcome
	}
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

// probe opens a connection, leaves it silent, and says what became of it.
func (c Config) probe(ctx context.Context, silence time.Duration) probe {
	p := probe{silence: silence, outcome: cancelled}
	dialer := net.Dialer{Timeout: c.Patience, KeepAlive: -1} // a keepalive probe would end the silence
	conn, err := dialer.DialContext(ctx, "tcp", c.Target)
	if err != nil {
		p.err = err
		return p
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(c.Patience))
	if err := echo(conn); err != nil {
		p.err = fmt.Errorf("the target does not echo a line: %w", err)
		return p
	}
	silent := time.Now()
	_ = conn.SetReadDeadline(silent.Add(silence))
	n, err := conn.Read(make([]byte, 512))
	p.ended = time.Since(silent)
	if n > 0 { // a goodbye, if the close follows
		_ = conn.SetReadDeadline(time.Now().Add(goodbye))
		if _, err = io.Copy(io.Discard, conn); err == nil {
			err = io.EOF
		}
	}
	switch {
	case ctx.Err() != nil:
		return p
	case n > 0 && errors.Is(err, os.ErrDeadlineExceeded):
		p.err = errors.New("the target sends without a request, so its connections are not silent")
		return p
	case errors.Is(err, io.EOF):
		p.outcome = ClosedInTime
		return p
	case !errors.Is(err, os.ErrDeadlineExceeded):
		p.outcome = ResetInTime
		return p
	}
	_ = conn.SetDeadline(time.Now().Add(c.Patience))
	switch err := echo(conn); {
	case ctx.Err() != nil:
	case err == nil:
		p.outcome = Survived
	case errors.Is(err, os.ErrDeadlineExceeded):
		p.outcome = Dropped
	case errors.Is(err, io.EOF):
		p.outcome = ClosedByWrite
	default:
		p.outcome = Reset
	}
	return p
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
