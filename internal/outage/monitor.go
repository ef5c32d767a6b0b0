// Package outage detects times in which the server could not hear its peers, because its process
// or its machine was paused, or because its network was down. Precedents of the second are the
// self-preservation of Eureka, Lifeguard in memberlist, and the zone disruption modes of the node
// controller of Kubernetes.
package outage

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

const (
	// minGap and maxGap bound the tenth of the shortest timeout that a delay must exceed to count.
	minGap = 20 * time.Millisecond
	maxGap = 200 * time.Millisecond
	// MinBusy is the number of connections that must have been busy together before their common
	// silence counts as evidence about the network. If connections are silent independently of each
	// other, and MinBusy of them were heard in a period, then none is heard in the next period of
	// that length with a probability of exp(-16), one in nine million.
	MinBusy = 16
	// calmFactor is the factor by which a silence must exceed the silences before it.
	calmFactor = 2
	// minTicks is the number of ticks below which a silence says nothing.
	minTicks = 4
	// moreSilence is the divisor of a silence that gives the time until the busy connections are
	// counted again, if they were too few. The next count covers a longer time before the silence.
	moreSilence = 4
	// maxHolds is the number of consecutive holds that count as outages. After that, a common
	// silence is normal traffic.
	maxHolds = 3
	// countPart is the part of the shortest idle timeout for which verdicts wait for a count.
	countPart = 8
)

// A State has the findings of a Monitor. Immutable, except for its Count.
type State struct {
	Server verdict.Outages // the process or the machine was paused
	Silent verdict.Outages // no connection received anything
	Count  *Count          // nil while peers are heard
}

// Held reports whether verdicts about peers are held, because enough of them were busy together.
func (s *State) Held() bool { return s.Count != nil && s.Count.enough() }

// Holds returns the beginning of the silence for which verdicts are held, if they are. They also
// wait for a short time while it is not known how many connections were busy together.
func (s *State) Holds(now mono.Time) []mono.Time {
	if c := s.Count; c == nil || !c.enough() && now >= c.until {
		return nil
	}
	return []mono.Time{s.Count.To}
}

// forget returns the instant before which outages have no effect any more: none puts a deadline off
// by more than MaxTimeouts, the time beyond one timeout, and its length.
func (s *State) forget(now mono.Time, rule Rule) mono.Time {
	memory := verdict.Timeouts(rule.Memory)
	for _, o := range slices.Concat(s.Server, s.Silent) {
		memory += 2 * o.Length
	}
	return now.Add(-memory)
}

// A Count is the number of connections that were busy together before a silence. Safe for
// concurrent use.
type Count struct {
	// From and To bound the period. A connection counts if it was opened before the period and
	// heard last within it.
	From, To mono.Time
	Least    int           // so many are enough
	stopped  time.Duration // the sum of the gaps in the silence
	until    mono.Time     // verdicts wait until then, if they are not held
	told     bool          // that they are held; owned by the caller of Step
	busy     atomic.Int32
	before   *Count // of the same silence, without a gap between, if the Rule says Sums
}

// Add adds connections of one event loop.
func (c *Count) Add(n int) { c.busy.Add(int32(n)) }

// Continues reports whether a Count adds to one before. Its sum has the connections of both.
func (c *Count) Continues(before *Count) bool {
	for ; c != nil; c = c.before {
		if c == before {
			return true
		}
	}
	return false
}

// Enough returns the number of busy connections that are still missing. An event loop need not
// count more.
func (c *Count) Enough() int {
	missing := c.Least
	for ; c != nil; c = c.before {
		missing -= int(c.busy.Load())
	}
	return max(missing, 0)
}

func (c *Count) enough() bool { return c.Enough() == 0 }

// A Monitor watches one server. State is safe for concurrent use; everything else is not.
type Monitor struct {
	state atomic.Pointer[State]

	told    mono.Time     // the latest heard that Step got; up to a gap later than heard
	heard   mono.Time     // the beginning of the silence
	stopped time.Duration // the sum of the gaps since then, in which no peer could be heard
	late    time.Duration // the sum of the delays since then that are no gaps
	longer  time.Duration // the silence at which the busy connections are counted next
	calm    mono.Longest  // recent silences that were no outages
	ended   mono.Time     // the end of the last hold
	inARow  int           // consecutive holds, each within Usual of the end of the previous one

	// Known are outages that are known otherwise. Their time is no silence. Owned by the caller of
	// Step.
	Known verdict.Outages

	// Outages, Time and Holds are totals. Owned by the caller of Step.
	Outages uint64
	Time    time.Duration
	Holds   uint64
}

// Init starts the Monitor at an instant.
func (m *Monitor) Init(now mono.Time) {
	m.state.Store(&State{})
	m.heard = now
}

// Resume restarts the Monitor after a time without connections. It ends a hold.
func (m *Monitor) Resume(now mono.Time) {
	m.hear(max(m.heard, now))
	m.setCount(nil)
}

// State returns the findings so far.
func (m *Monitor) State() *State { return m.state.Load() }

// A Rule defines an outage.
type Rule struct {
	Tick     time.Duration
	Gap      time.Duration // a longer delay of the clock is an outage, see [LeastGap]
	Memory   time.Duration // the time for which outages are remembered
	Longest  time.Duration // the longest limit that a hold applies to
	Shortest time.Duration // idle timeout, 0 if there is none
	// Usual is the shortest idle timeout that half of the connections have. It says for how long a
	// silence is remembered, and which outages follow each other. One client with a long timeout of
	// its own, or a long limit beside a short one, must not make a quiet night count on the next
	// day, nor one client with a short timeout a habit be forgotten.
	Usual time.Duration
	Hold  bool // a silence of all connections may count as an outage
	Busy  int  // see MinBusy
	// Sums says that Counts of the same silence have one sum: an event loop that is slow counts for
	// one of them only. It adds its connections once.
	Sums bool
}

// LeastGap returns the delay of a coarse clock above which the server was away: two ticks, and a
// tenth of the shortest timeout. A shorter delay cuts off no peer, and a busy machine has many.
func LeastGap(tick, shortest time.Duration) time.Duration {
	return max(2*tick, min(max(shortest/10, minGap), maxGap))
}

// IsGap reports whether the time between two moves of the clock is an outage.
func (r *Rule) IsGap(from, to mono.Time) bool { return to.Sub(from)-r.Tick > r.Gap }

// calm returns the time for which silences that were no outages are remembered.
func (r *Rule) calm() time.Duration { return max(4*r.Usual, time.Minute) }

// A Finding is the result of one Step, for the log.
type Finding struct {
	Outage  verdict.Outage // an outage that has just ended, if its Length is not 0
	Silent  bool           // Outage is a silence of all connections, not a gap
	GivenUp bool           // Outage is a hold that has lasted for too long
	Held    time.Duration  // a hold has just begun, after a silence of this length
	Count   bool           // a Count has begun: every event loop adds its connections
}

// Step moves the Monitor from one reading of the clock to the next. The caller passes the instant
// at which a peer was heard last.
func (m *Monitor) Step(from, to, heard mono.Time, rule Rule) (f Finding) {
	gap := rule.IsGap(from, to)
	news := heard > m.told
	m.told = max(m.told, heard)
	if gap { // bytes heard in the gap may have been heard before the clock stopped
		heard = min(heard, from)
	}
	held := m.State().Held()
	if late := to.Sub(from) - rule.Tick; !gap && late > rule.Tick {
		m.late += late
	}
	if news && !held { // the silence was no outage
		m.addCalm(heard, to, rule)
		m.setCount(nil)
		m.hear(heard)
	}
	if gap {
		f = m.addGap(from, to, rule)
	}
	switch {
	case news && held:
		m.learn(heard, to, rule)
		f = m.endHold(heard, to, rule, false)
		if gap {
			m.stopped = to.Sub(from)
		}
	case !gap:
		f = m.wait(to, rule)
	}
	return f
}

// wait checks the silence so far. It begins a Count or a hold, or ends a hold that lasts too long.
func (m *Monitor) wait(to mono.Time, rule Rule) Finding {
	silence := m.silence(to)
	count := m.State().Count
	switch {
	case !rule.Hold: // an update of the Rule may have switched it off
		m.setCount(nil)
	case count != nil && count.enough():
		if !count.told {
			count.told = true
			m.Holds++
			return Finding{Held: silence}
		}
		if silence > 2*rule.Longest { // all held verdicts are due
			return m.endHold(to, to, rule, true)
		}
	case rule.Shortest > 0 && silence >= m.threshold(to, rule):
		m.longer = silence + silence/moreSilence
		began := m.heard.Add(-silence)
		if m.ended > 0 {
			began = max(began, m.ended)
		}
		until := m.heard.Add(m.stopped + m.late + rule.Shortest/countPart)
		next := &Count{From: began, To: m.heard, stopped: m.stopped, until: until, Least: rule.Busy}
		if rule.Sums && count != nil && next.To == count.To && next.stopped == count.stopped {
			next.before = count
		}
		m.setCount(next)
		return Finding{Count: true}
	}
	return Finding{}
}

// threshold returns the length of a silence after which the network may be down. If it is not known
// how long silences are, or the bytes of a gap may still be on their way, it is longer.
func (m *Monitor) threshold(now mono.Time, rule Rule) time.Duration {
	calm, least := m.calm.Worst(now, rule.calm()), minTicks*rule.Tick
	if calm == 0 || m.stopped > 0 {
		least = max(least, rule.Shortest/countPart)
	}
	return max(m.longer, calmFactor*calm+1, least)
}

// hear begins a silence.
func (m *Monitor) hear(at mono.Time) { m.heard, m.stopped, m.late, m.longer = at, 0, 0, 0 }

// silence returns how long no peer was heard while the server ran.
func (m *Monitor) silence(now mono.Time) time.Duration {
	return max(now.Sub(m.heard)-m.stopped-m.late, 0)
}

// addGap adds a time in which the clock stood still. A silence continues after it, and so does a
// hold, because the network may be down as well. Connections are counted again, because a Count
// belongs to one State.
func (m *Monitor) addGap(from, to mono.Time, rule Rule) Finding {
	gap := verdict.Outage{From: from, To: to, Length: to.Sub(from)}
	m.stopped += gap.Length
	m.longer = 0
	s := *m.State()
	if !s.Held() {
		s.Count = nil
	}
	s.Server = s.Server.Add(gap, s.forget(from, rule))
	m.add(&s, gap.Length)
	return Finding{Outage: gap}
}

// addCalm records a silence as normal traffic, without its gaps and the known outages.
func (m *Monitor) addCalm(heard, now mono.Time, rule Rule) {
	m.calm.Add(m.silence(heard)-m.Known.Within(m.heard, heard), now, rule.calm())
}

func (m *Monitor) setCount(c *Count) {
	if s := *m.State(); s.Count != c {
		s.Count = c
		m.state.Store(&s)
	}
}

// learn records a held silence as normal traffic if it follows maxHolds consecutive holds: these
// peers are regularly silent together.
func (m *Monitor) learn(heard, now mono.Time, rule Rule) {
	if m.heard.Sub(m.ended) > rule.Usual {
		m.inARow = 0
	}
	if m.inARow++; m.inARow > maxHolds {
		m.addCalm(heard, now, rule)
	}
}

// endHold ends a silence in which verdicts were held and records it as an outage, without its gaps,
// which are recorded already. The last byte may have come a tick before the clock reported it. A
// hold that is given up puts no verdict off: the held ones are due, also if their loop is late.
func (m *Monitor) endHold(heard, now mono.Time, rule Rule, givenUp bool) Finding {
	m.ended = now
	length := now.Sub(m.heard) - m.stopped
	s := *m.State()
	silent := verdict.Outage{From: m.heard.Add(-rule.Tick), To: now, Length: length + rule.Tick}
	if s.Count = nil; !givenUp {
		s.Silent = s.Silent.Add(silent, s.forget(m.heard, rule))
	}
	m.add(&s, length)
	outage := verdict.Outage{From: m.heard, To: now, Length: now.Sub(m.heard)}
	m.hear(heard)
	return Finding{Outage: outage, Silent: true, GivenUp: givenUp}
}

// add publishes a State with one more outage. The given part of its time was not counted before.
func (m *Monitor) add(s *State, more time.Duration) {
	m.Outages++
	m.Time += more
	m.state.Store(s)
}
