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
)

// A Verdict says in which condition a connection was when the server closed it.
type Verdict string

const (
	// Unread: bytes of the peer waited unread. The connection was alive.
	Unread Verdict = "alive-unread"
	// Rhythm: the silence was no longer than others of this peer. The connection was alive.
	Rhythm Verdict = "alive-rhythm"
	// AfterMessage: the server had just read a message, which may have asked for the close.
	AfterMessage Verdict = "after-message"
	// Silence: the peer was silent for longer than ever before, or for the idle timeout.
	Silence Verdict = "silence"
	// Shutdown: the server had stopped listening.
	Shutdown Verdict = "shutdown"
)

const (
	// minGaps is the number of gaps that make a rhythm, and of closes that make an idle timeout.
	minGaps = 3
	// afterMessage is the longest time from a message to a close that the message may have asked for.
	afterMessage = 50 * time.Millisecond
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
	Schema      int           `json:"schema"`
	Ports       []int         `json:"ports"`
	Began       time.Time     `json:"began"`
	Took        time.Duration `json:"took_ns"`
	Every       time.Duration `json:"every_ns"`
	LongestWait time.Duration `json:"longest_wait_ns"` // between two samples
	Interrupted bool          `json:"interrupted,omitempty"`

	Seen  int `json:"seen"`  // connections
	Short int `json:"short"` // connections that no sample shows

	AliveUnread     int `json:"closed_alive_unread"`
	AliveRhythm     int `json:"closed_alive_rhythm"`
	AfterMessage    int `json:"closed_after_message"`
	Silent          int `json:"closed_silent"`
	Shutdown        int `json:"closed_at_shutdown"`
	ClosedByPeer    int `json:"closed_by_peer"`
	ClosedByUnknown int `json:"closed_by_unknown"`

	KeptDead   int           `json:"kept_dead"`
	KeptAfter  time.Duration `json:"kept_after_ns"` // 0 if the own rhythm of each peer decides
	HalfClosed int           `json:"half_closed"`   // the peer has closed its end, the server has not

	Timeout Timeout       `json:"idle_timeout"`
	Enough  time.Duration `json:"enough_heartbeat_ns"` // 0 if unknown

	Closes []Close  `json:"closes"` // all but those by the peer
	Open   []Open   `json:"open"`
	Blind  []string `json:"not_seen"`
}

// A Timeout is what the idle timeout of the server appears to be: the range in which most silences
// ended with a close by the server.
type Timeout struct {
	Shortest time.Duration `json:"shortest_ns"`
	Median   time.Duration `json:"median_ns"`
	Longest  time.Duration `json:"longest_ns"`
	Count    int           `json:"count"`
}

// An Open is a connection at the end of the watch.
type Open struct {
	Remote     netip.AddrPort `json:"remote"`
	Silent     time.Duration  `json:"silent_ns"`
	Unread     uint32         `json:"unread_bytes"`
	Gaps       int            `json:"gaps"`
	Longest    time.Duration  `json:"longest_gap_ns"`
	HalfClosed bool           `json:"half_closed,omitempty"`
	Dead       bool           `json:"kept_dead,omitempty"`
}

// ClosedAlive returns the number of connections that the server closed while they were alive.
func (r *Report) ClosedAlive() int { return r.AliveUnread + r.AliveRhythm }

// inRhythm reports whether the peer was silent for no longer than before.
func inRhythm(c Close) bool {
	return c.Gaps >= minGaps && float64(c.Silent) <= rhythmMargin*float64(c.Longest)
}

// judge fills in the report. timeout is the idle timeout of the server, 0 if it is not known.
func (t *tracker) judge(r *Report, timeout time.Duration) {
	r.Seen, r.Short, r.ClosedByPeer, r.Closes = t.seen, t.short, t.peerCloses, t.closes
	var silences []time.Duration
	for i := range r.Closes {
		c := &r.Closes[i]
		switch {
		case c.By == Unknown:
			r.ClosedByUnknown++
		case c.Verdict == Shutdown:
			r.Shutdown++
		case c.Unread > 0:
			c.Verdict = Unread
			r.AliveUnread++
		case c.Sent && c.Silent-c.Within <= afterMessage:
			c.Verdict = AfterMessage
			r.AfterMessage++
		case !inRhythm(*c):
			silences = append(silences, c.Silent)
		}
	}
	slices.Sort(silences)
	r.Timeout = densest(silences)
	known := cmp.Or(timeout, r.Timeout.Median)
	for i := range r.Closes {
		c := &r.Closes[i]
		switch {
		case c.By != Server || c.Verdict != "":
		case inRhythm(*c) && (known == 0 || float64(c.Silent) < timeoutMargin*float64(known)):
			c.Verdict = Rhythm
			r.AliveRhythm++
		default:
			c.Verdict = Silence
			r.Silent++
		}
	}
	if r.Timeout.Count > 0 {
		r.Enough = Heartbeat(r.Timeout.Shortest)
		known = cmp.Or(timeout, max(r.Timeout.Longest, silences[len(silences)*99/100]))
	}
	r.KeptAfter = time.Duration(keptMargin * float64(known))
	t.judgeOpen(r)
}

// judgeOpen adds the connections that are open.
func (t *tracker) judgeOpen(r *Report) {
	for _, c := range t.conns {
		if c.ended || c.missing > 0 {
			continue
		}
		o := Open{
			Remote: c.last.remote, Silent: c.last.at.Sub(c.last.lastByte), Unread: c.last.unread,
			Gaps: c.gaps, Longest: c.longest, HalfClosed: c.last.state == closeWait,
		}
		switch {
		case o.HalfClosed:
			r.HalfClosed++
		case r.KeptAfter > 0:
			o.Dead = o.Silent > r.KeptAfter
		default:
			o.Dead = o.Gaps >= minGaps && o.Silent > lostRhythm*o.Longest
		}
		if o.Dead {
			r.KeptDead++
		}
		r.Open = append(r.Open, o)
	}
	slices.SortFunc(r.Open, func(a, b Open) int { return cmp.Compare(b.Silent, a.Silent) })
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
func Heartbeat(timeout time.Duration) time.Duration {
	return max((timeout-time.Second)/3, timeout/6)
}

// Write writes the report as text.
func (r *Report) Write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nwitness of %s for %s: %d connections, %d open at the end\n\n", ports(r.Ports), short(r.Took), r.Seen, len(r.Open))
	fmt.Fprintf(w, "closed while alive\t%d\tunread bytes waited %d, within the rhythm of the peer %d\n", r.ClosedAlive(), r.AliveUnread, r.AliveRhythm)
	if r.KeptAfter > 0 {
		fmt.Fprintf(w, "kept dead\t%d\tsilent for more than %s, %v times the idle timeout\n", r.KeptDead, short(r.KeptAfter), keptMargin)
	} else {
		fmt.Fprintf(w, "kept dead\t%d\tsilent for more than %d times the longest gap of the peer; no idle timeout was seen\n", r.KeptDead, lostRhythm)
	}
	fmt.Fprintf(w, "other closes by the server\t%d\tafter silence %d, right after a message %d, with the listener %d\n",
		r.Silent+r.AfterMessage+r.Shutdown, r.Silent, r.AfterMessage, r.Shutdown)
	fmt.Fprintf(w, "closed first by the peer\t%d\tand not yet by the server %d\n", r.ClosedByPeer, r.HalfClosed)
	fmt.Fprintf(w, "closed by either side\t%d\tunknown, because events were lost\n", r.ClosedByUnknown)
	_ = w.Flush()

	if t := r.Timeout; t.Count > 0 {
		fmt.Fprintf(out, "\nidle timeout: the server closed %d connections after a silence of %s to %s, median %s\n",
			t.Count, short(t.Shortest), short(t.Longest), short(t.Median))
		fmt.Fprintf(out, "a heartbeat every %s would have been enough\n", short(r.Enough))
	} else {
		fmt.Fprintln(out, "\nidle timeout: not seen, because the server closed too few silent connections")
	}
	if r.AliveUnread > 0 {
		fmt.Fprintln(out, "no heartbeat would have saved the connections with unread bytes: the server did not read them in time")
	}
	histogram(out, "silence at the close by the server", each(r.Closes, func(c Close) (time.Duration, bool) { return c.Silent, c.Verdict == Silence }))
	histogram(out, "silence at a close while alive", each(r.Closes, func(c Close) (time.Duration, bool) {
		return c.Silent, c.Verdict == Unread || c.Verdict == Rhythm
	}))
	histogram(out, "silence of open connections", each(r.Open, func(o Open) (time.Duration, bool) { return o.Silent, !o.HalfClosed }))
	fmt.Fprintln(out, "\nnot seen:")
	for _, b := range r.Blind {
		fmt.Fprintf(out, "  %s\n", b)
	}
}

func ports(numbers []int) string {
	return "port " + strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "), "[]")
}

// each returns the chosen durations.
func each[T any](from []T, choose func(T) (time.Duration, bool)) (all []time.Duration) {
	for _, v := range from {
		if d, ok := choose(v); ok {
			all = append(all, d)
		}
	}
	return all
}

// histogram writes ten bars for each power of ten, except empty ones.
func histogram(out io.Writer, title string, all []time.Duration) {
	if len(all) == 0 {
		return
	}
	counts := map[int]int{}
	most := 0
	for _, d := range all {
		i := int(math.Floor(10 * math.Log10(max(1, float64(d)/1e6))))
		counts[i]++
		most = max(most, counts[i])
	}
	fmt.Fprintf(out, "\n%s\n", title)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i := range 200 {
		if n := counts[i]; n > 0 {
			fmt.Fprintf(w, "%s\tto %s\t%d\t %s\n", edge(i), edge(i+1), n, strings.Repeat("#", (40*n+most-1)/most))
		}
	}
	_ = w.Flush()
}

// edge returns the lower edge of a bar.
func edge(i int) string { return short(time.Duration(math.Pow(10, float64(i)/10) * 1e6)) }

// short rounds a duration to about three digits.
func short(d time.Duration) string {
	unit := time.Millisecond
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}
