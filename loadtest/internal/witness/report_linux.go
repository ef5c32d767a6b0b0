package witness

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/silence"
	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/reap"
)

// A Verdict says what became of a connection, and in which condition it was then.
type Verdict string

const (
	// The server closed it while it was alive: bytes of the peer waited unread, or the silence was
	// no longer than others of this peer.
	AliveUnread Verdict = "alive-unread"
	AliveRhythm Verdict = "alive-rhythm"
	// The server closed it right after it had read a message, which may have asked for that.
	AfterMessage Verdict = "after-message"
	// The server closed it when the peer was silent for longer than before, or for the idle timeout.
	Silence Verdict = "silence"
	// The server closed it, and had stopped listening.
	Shutdown Verdict = "shutdown"
	// byServer is a close by the server until it is judged.
	byServer Verdict = ""
	// The peer closed it first.
	ByPeer Verdict = "by-peer"
	// Either side closed it: its last segments do not tell, or the kernel dropped events.
	Unknown Verdict = "unknown"

	// It is open. If KeptDead, the peer is silent for much too long. If HalfClosed, the peer has
	// closed its end, and the server has not.
	Open       Verdict = "open"
	KeptDead   Verdict = "kept-dead"
	HalfClosed Verdict = "half-closed"
)

const (
	// minGaps is the number of gaps that make a rhythm, and of closes that make an idle timeout.
	minGaps = 3
	// afterMessage is the longest time from a message to a close that it may have asked for.
	afterMessage = 100 * time.Millisecond
	// rhythmMargin and timeoutMargin: a peer within its rhythm is silent for at most the longest of
	// its gaps and a tenth, and for less than nine tenths of the idle timeout.
	rhythmMargin, timeoutMargin = 1.1, 0.9
	// keptMargin is the part of the idle timeout after which a silent connection is kept dead.
	keptMargin = 1.5
	// lostRhythm is the number of its longest gaps after which a peer that had a rhythm is dead. It
	// counts if no idle timeout is known.
	lostRhythm = 5
	// spread is the ratio between the longest and the shortest silence that count as one timeout.
	spread = 1.25
)

// A Report is the outcome of a watch.
type Report struct {
	Schema      int           `json:"schema"` // version of these fields
	Ports       []int         `json:"ports"`
	Began       time.Time     `json:"began"`
	Took        time.Duration `json:"took_ns"`
	Every       time.Duration `json:"every_ns"`
	LongestWait time.Duration `json:"longest_wait_ns"` // between two samples
	Interrupted bool          `json:"interrupted,omitempty"`

	Seen      int             `json:"seen"` // connections
	Verdicts  map[Verdict]int `json:"verdicts"`
	KeptAfter time.Duration   `json:"kept_after_ns"` // 0 if the own rhythm of each peer decides
	Timeout   Timeout         `json:"idle_timeout"`
	Enough    time.Duration   `json:"enough_heartbeat_ns"` // 0 if unknown
	Other     []string        `json:"other_timeouts"`      // what they would have done

	Closed []Connection `json:"closed"` // all but those by the peer
	Open   []Connection `json:"open"`   // the longest silent first
	Blind  []string     `json:"not_seen"`
}

// A Timeout is what the idle timeout of the server appears to be: the range in which most silences
// ended with a close by the server.
type Timeout struct {
	Shortest time.Duration `json:"shortest_ns"`
	Median   time.Duration `json:"median_ns"`
	Longest  time.Duration `json:"longest_ns"`
	Count    int           `json:"count"`
}

// A Connection is one that the server has closed, or that is open at the end of the watch.
type Connection struct {
	Remote  netip.AddrPort `json:"remote"`
	Verdict Verdict        `json:"verdict"`
	Closed  time.Time      `json:"closed,omitzero"`
	Silent  time.Duration  `json:"silent_ns"`           // since the last byte, or the first packet
	Within  time.Duration  `json:"within_ns,omitempty"` // the largest error of Closed and Silent
	Unread  uint32         `json:"unread_bytes"`
	Sent    bool           `json:"sent"` // the peer has sent something
	Gaps    int            `json:"gaps"` // silences that the peer ended itself, under watch
	Longest time.Duration  `json:"longest_gap_ns"`
}

// ClosedAlive returns the number of connections that the server closed while they were alive.
func (r *Report) ClosedAlive() int { return r.Verdicts[AliveUnread] + r.Verdicts[AliveRhythm] }

// inRhythm reports whether the peer was silent for no longer than before.
func (c *Connection) inRhythm() bool {
	return c.Gaps >= minGaps && float64(c.Silent) <= rhythmMargin*float64(c.Longest)
}

// judge fills in the verdicts. timeout is the idle timeout of the server, 0 if it is not known.
func (t *tracker) judge(timeout time.Duration) {
	var silences, exact []time.Duration
	for i := range t.Closed {
		switch c := &t.Closed[i]; {
		case c.Verdict != byServer:
		case c.Unread > 0:
			c.Verdict = AliveUnread
		case c.Sent && c.Silent-c.Within <= afterMessage:
			c.Verdict = AfterMessage
		case !c.inRhythm():
			c.Verdict = Silence
			silences = append(silences, c.Silent)
			if c.Within <= resolution {
				exact = append(exact, c.Silent)
			}
		}
	}
	if len(exact) >= minGaps {
		silences = exact
	}
	slices.Sort(silences)
	t.Timeout = densest(silences)
	known := cmp.Or(timeout, t.Timeout.Median)
	for i := range t.Closed {
		c := &t.Closed[i]
		if c.Verdict == byServer {
			c.Verdict = Silence // also in the rhythm of a peer that is as slow as the timeout allows
			if known == 0 || float64(c.Silent) < timeoutMargin*float64(known) {
				c.Verdict = AliveRhythm
			}
		}
		t.Verdicts[c.Verdict]++
	}
	if t.Timeout.Count > 0 {
		t.Enough = Heartbeat(t.Timeout.Shortest)
		known = cmp.Or(timeout, max(t.Timeout.Longest, silences[len(silences)*99/100]))
	}
	t.KeptAfter = time.Duration(keptMargin * float64(known))
	t.judgeOpen()
	if timeout = cmp.Or(timeout, t.Timeout.Median); timeout > 0 {
		t.tryOthers(timeout)
	}
}

// tryOthers says what other timeouts than the present one would have done.
func (t *tracker) tryOthers(timeout time.Duration) {
	for _, c := range t.Open {
		t.gaps[silence.Bucket(c.Longest)]++
	}
	s := reap.Silences{
		Window: t.Took, Timeout: timeout, Least: t.Every, Connections: uint64(t.Seen),
		Dead: uint64(t.Verdicts[Silence]), Living: t.gaps[:],
	}
	for _, c := range t.Closed {
		if c.Verdict == Silence {
			s.DeadFor += c.Silent.Seconds()
		}
	}
	for _, other := range []time.Duration{timeout / 2, timeout * 3 / 4} {
		t.Other = append(t.Other, s.Text(other.Round(time.Millisecond)))
	}
}

// judgeOpen adds the open connections.
func (t *tracker) judgeOpen() {
	for _, c := range t.conns {
		if !c.open() {
			continue
		}
		o := c.record(c.last)
		limit := cmp.Or(t.KeptAfter, lostRhythm*o.Longest)
		switch {
		case c.last.state == unix.BPF_TCP_CLOSE_WAIT:
			o.Verdict = HalfClosed
		case o.Silent > limit && (t.KeptAfter > 0 || o.Gaps >= minGaps):
			o.Verdict = KeptDead
		default:
			o.Verdict = Open
		}
		t.Verdicts[o.Verdict]++
		t.Open = append(t.Open, o)
	}
	slices.SortFunc(t.Open, func(a, b Connection) int { return cmp.Compare(b.Silent, a.Silent) })
}

// densest returns the range with a ratio of spread that holds most of the sorted silences, or zero
// if it holds fewer than minGaps.
func densest(sorted []time.Duration) (found Timeout) {
	from := 0
	for to := range sorted {
		for float64(sorted[to]) > spread*float64(sorted[from]) {
			from++
		}
		if n := to - from + 1; n >= minGaps && n > found.Count {
			found = Timeout{Shortest: sorted[from], Median: sorted[from+n/2], Longest: sorted[to], Count: n}
		}
	}
	return found
}

// Heartbeat returns the longest interval of heartbeats, jitter included, for an idle timeout: the
// timeout is at least three intervals and a second for the network, or half as much if it is short.
// The rule is in docs/limits.md.
func Heartbeat(timeout time.Duration) time.Duration {
	return max((timeout-time.Second)/3, timeout/6)
}

// Write writes the report as text.
func (r *Report) Write(out io.Writer) {
	n := r.Verdicts
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nwitness of %s for %s: %d connections, %d open at the end\n\n", ports(r.Ports), format.Duration(r.Took), r.Seen, len(r.Open))
	fmt.Fprintf(w, "closed while alive\t%d\tunread bytes waited %d, within the rhythm of the peer %d\n", r.ClosedAlive(), n[AliveUnread], n[AliveRhythm])
	kept := fmt.Sprintf("silent for more than %s, %v times the idle timeout", format.Duration(r.KeptAfter), keptMargin)
	if r.KeptAfter == 0 {
		kept = fmt.Sprintf("silent for more than %d times the longest gap of the peer; no idle timeout was seen", lostRhythm)
	}
	fmt.Fprintf(w, "kept dead\t%d\t%s\n", n[KeptDead], kept)
	fmt.Fprintf(w, "other closes by the server\t%d\tafter silence %d, right after a message %d, with the listener %d\n",
		n[Silence]+n[AfterMessage]+n[Shutdown], n[Silence], n[AfterMessage], n[Shutdown])
	fmt.Fprintf(w, "closed first by the peer\t%d\tand not yet by the server %d\n", n[ByPeer], n[HalfClosed])
	if n[Unknown] > 0 {
		fmt.Fprintf(w, "closed by either side\t%d\tthe last segments do not tell, or the kernel dropped events\n", n[Unknown])
	}
	_ = w.Flush()

	if t := r.Timeout; t.Count > 0 {
		fmt.Fprintf(out, "\nidle timeout: the server closed %d connections after a silence of %s to %s, median %s\n"+
			"a heartbeat every %s would have been enough, jitter included; the rule is in docs/limits.md#the-rule\n",
			t.Count, format.Duration(t.Shortest), format.Duration(t.Longest), format.Duration(t.Median), format.Duration(r.Enough))
	} else {
		fmt.Fprintln(out, "\nidle timeout: not seen, because the server closed too few silent connections")
	}
	for _, text := range r.Other {
		fmt.Fprintln(out, text)
	}
	if n[AliveUnread] > 0 {
		fmt.Fprintln(out, "no heartbeat would have saved the connections with unread bytes: the server did not read them in time")
	}
	histogram(out, "silence at the close by the server", r.Closed, Silence)
	histogram(out, "silence at a close while alive", r.Closed, AliveUnread, AliveRhythm)
	histogram(out, "silence of open connections", r.Open, Open, KeptDead)
	fmt.Fprintf(out, "\nnot seen:\n  %s\n", strings.Join(r.Blind, "\n  "))
	if r.Interrupted {
		fmt.Fprintln(out, "\ninterrupted: the figures cover the time until then")
	}
}

func ports(numbers []int) string {
	return "port " + strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "), "[]")
}

// histogram writes the silences with these verdicts: ten bars for each power of ten, except empty
// ones.
func histogram(out io.Writer, title string, all []Connection, of ...Verdict) {
	var counts [100]int // the last one begins after 92 days
	for _, c := range all {
		if slices.Contains(of, c.Verdict) {
			i := int(10 * math.Log10(max(1, float64(c.Silent)/1e6)))
			counts[min(i, len(counts)-1)]++
		}
	}
	most := slices.Max(counts[:])
	if most == 0 {
		return
	}
	edge := func(i int) string { return format.Duration(time.Duration(math.Pow(10, float64(i)/10) * 1e6)) }
	fmt.Fprintf(out, "\n%s\n", title)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, n := range counts {
		if n > 0 {
			fmt.Fprintf(w, "%s\tto %s\t%d\t %s\n", edge(i), edge(i+1), n, strings.Repeat("#", (40*n+most-1)/most))
		}
	}
	_ = w.Flush()
}
