// Package outage finds out when the server could not hear its peers: because its process or its
// machine stood still, or because its network was down.
package outage

import (
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/internal/coarse"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

const (
	// minGap is the shortest time that counts as an outage where ticks are short.
	minGap = 20 * time.Millisecond
	// minBusy is how many connections must have been busy together before their common silence says
	// something about the network. If they are silent independently of each other, and minBusy of
	// them were heard in a period, then none is heard in the next period of that length with a
	// probability of exp(-16), one in nine million.
	minBusy = 16
	// calmFactor is how much longer a silence must be than those before it.
	calmFactor = 2
	// moreSilence is the part of a silence after which the busy connections are counted again, if they
	// were too few: a longer silence is compared with a longer time before it.
	moreSilence = 4
	// maxHolds is how many holds in a row are taken for outages before the silence of all connections
	// is taken for a habit of theirs.
	maxHolds = 3
	// minSilence is the part of the shortest idle timeout below which a silence is of no account.
	minSilence = 8
)

// IsGap reports whether the time between two moves of a coarse clock is an outage: the clock was
// more than two ticks late.
func IsGap(from, to, tick time.Duration) bool { return to-from-tick > max(2*tick, minGap) }

// A State is what a Monitor has found out. Immutable, but for its Count.
type State struct {
	Server verdict.Outages // the process or the machine stood still
	Silent verdict.Outages // nothing was heard from any connection
	Count  *Count          // nil while peers are heard
}

// Held reports whether verdicts about peers are held.
func (s *State) Held() bool { return s.Count != nil && s.Count.enough() }

// HeldSince returns when the silence began for which verdicts are held, 0 if they are not.
func (s *State) HeldSince() time.Duration {
	if !s.Held() {
		return 0
	}
	return max(s.Count.To, 1)
}

// A Count adds up how many connections were busy together before a silence. Safe for concurrent
// use.
type Count struct {
	// From and To bound the period. Only connections count that were opened before it, and heard last
	// in it.
	From, To time.Duration
	busy     atomic.Int32
}

// Add adds connections of one event loop.
func (c *Count) Add(n int) { c.busy.Add(int32(n)) }

// Enough is how many connections of one event loop need to be counted at most.
func (c *Count) Enough() int { return max(minBusy-int(c.busy.Load()), 0) }

func (c *Count) enough() bool { return c.busy.Load() >= minBusy }

// A Monitor watches one server. Step and its counters are for one goroutine at a time; State is
// safe for concurrent use.
type Monitor struct {
	state atomic.Pointer[State]

	told    time.Duration  // when a peer was heard last, as far as Step was told: it may be a gap later
	heard   time.Duration  // when the silence began
	stopped time.Duration  // the sum of the gaps since then, in which no peer could be heard
	longer  time.Duration  // the silence at which the busy connections are counted next
	calm    coarse.Longest // silences of late that were no outages
	ended   time.Duration  // when the last hold ended
	inARow  int            // holds, each of which began within Longest of the end of the one before

	// Outages, Time and Holds count what was found. Owned by the caller of Step.
	Outages uint64
	Time    time.Duration
	Holds   uint64
	held    bool
}

// Init makes the Monitor begin at an instant.
func (m *Monitor) Init(now time.Duration) {
	m.state.Store(&State{})
	m.heard = now
}

// Resume makes the Monitor go on at an instant after a time in which it was not needed. Nothing is
// held: the connections of before are gone.
func (m *Monitor) Resume(now time.Duration) {
	m.hear(max(m.heard, now))
	m.held = false
	m.dropCount()
}

// State returns what was found out so far.
func (m *Monitor) State() *State { return m.state.Load() }

// A Rule says what a Monitor takes for an outage.
type Rule struct {
	Tick     time.Duration
	Memory   time.Duration // for how long outages are remembered
	Longest  time.Duration // limit that is held
	Shortest time.Duration // idle timeout, 0 if there is none
	Hold     bool          // a silence of all connections may be an outage
}

// calm returns for how long silences are remembered that were no outages.
func (r *Rule) calm() time.Duration { return max(4*r.Longest, time.Minute) }

// A Finding is what one Step has found, for the log.
type Finding struct {
	Outage verdict.Outage // that has just ended, if its Length is not 0
	Silent bool           // it was a silence of all connections, and not a gap
	Held   time.Duration  // a hold has just begun, after a silence of this length
	Count  bool           // a Count has begun: all event loops are to take part
}

// Step tells the Monitor that the clock has moved from one instant to the next, and when a peer was
// heard last.
func (m *Monitor) Step(from, to, heard time.Duration, rule Rule) (f Finding) {
	gap := IsGap(from, to, rule.Tick)
	news := heard > m.told
	m.told = max(m.told, heard)
	if gap { // bytes that were heard in the gap may have been heard before the clock stood still
		heard = min(heard, from)
	}
	held := m.State().Held()
	if news && !held {
		m.endSilence(heard, to, rule)
	}
	if gap {
		f = m.addGap(from, to, rule)
	}
	if news && held {
		m.learn(heard, to, rule)
		f = m.endHold(to, rule)
		m.hear(heard)
		if gap {
			m.stopped = to - from
		}
	}
	if gap || news && held {
		return f
	}
	return m.wait(to, rule)
}

// wait judges the silence so far: it begins a Count, a hold, or ends a hold that lasts too long.
func (m *Monitor) wait(to time.Duration, rule Rule) (f Finding) {
	silence := to - m.heard - m.stopped
	count := m.State().Count
	switch {
	case !rule.Hold: // it was switched off
		m.held = false
		m.dropCount()
	case count != nil && count.enough():
		if !m.held {
			m.held = true
			m.Holds++
			return Finding{Held: silence}
		}
		if silence > 2*rule.Longest { // every verdict that was held has been passed
			f = m.endHold(to, rule)
			m.hear(to)
			return f
		}
	case rule.Shortest > 0 && silence >= m.threshold(to, rule):
		m.longer = silence + silence/moreSilence
		began := m.heard - silence
		if m.ended > 0 {
			began = max(began, m.ended)
		}
		s := *m.State()
		s.Count = &Count{From: began, To: m.heard}
		m.publish(&s)
		return Finding{Count: true}
	}
	return Finding{}
}

// threshold returns the silence from which on the network may be down.
func (m *Monitor) threshold(now time.Duration, rule Rule) time.Duration {
	return max(m.longer, calmFactor*m.calm.Worst(now, rule.calm())+1, rule.Shortest/minSilence, 4*rule.Tick)
}

// hear begins a silence.
func (m *Monitor) hear(at time.Duration) { m.heard, m.stopped, m.longer = at, 0, 0 }

// addGap adds a time in which the clock stood still. A silence goes on after it, and so does a
// hold: the network may be down as well. Connections are counted anew, because a Count is for one
// State.
func (m *Monitor) addGap(from, to time.Duration, rule Rule) Finding {
	m.stopped += to - from
	m.longer = 0
	s := *m.State()
	if !s.Held() {
		s.Count = nil
	}
	s.Server = s.Server.Add(verdict.Outage{From: from, To: to, Length: to - from}, from-2*rule.Memory)
	m.add(&s, to-from)
	return Finding{Outage: verdict.Outage{From: from, To: to, Length: to - from}}
}

// endSilence ends a silence that was no outage, but for its gaps.
func (m *Monitor) endSilence(heard, now time.Duration, rule Rule) {
	m.calm.Add(heard-m.heard-m.stopped, now, rule.calm())
	m.dropCount()
	m.hear(heard)
}

// dropCount ends a Count, if there is one.
func (m *Monitor) dropCount() {
	if s := *m.State(); s.Count != nil {
		s.Count = nil
		m.publish(&s)
	}
}

// learn takes a silence in which verdicts were held for a calm one if there were maxHolds in a row
// before it: then the peers are silent together as a habit.
func (m *Monitor) learn(heard, now time.Duration, rule Rule) {
	if m.ended == 0 || m.heard-m.ended > rule.Longest {
		m.inARow = 0
	}
	if m.inARow++; m.inARow > maxHolds {
		m.calm.Add(heard-m.heard-m.stopped, now, rule.calm())
	}
}

// endHold ends a silence in which verdicts were held: it was an outage. Its gaps have been counted. The
// peer that was heard last may have been heard a tick before the clock said so.
func (m *Monitor) endHold(now time.Duration, rule Rule) Finding {
	m.held, m.ended = false, now
	length := now - m.heard - m.stopped
	s := *m.State()
	silent := verdict.Outage{From: m.heard - rule.Tick, To: now, Length: length + rule.Tick}
	s.Count, s.Silent = nil, s.Silent.Add(silent, m.heard-2*rule.Memory)
	m.add(&s, length)
	return Finding{Outage: verdict.Outage{From: m.heard, To: now, Length: now - m.heard}, Silent: true}
}

// add publishes a State with one more outage, of which some time is new.
func (m *Monitor) add(s *State, more time.Duration) {
	m.Outages++
	m.Time += more
	m.publish(s)
}

func (m *Monitor) publish(s *State) { m.state.Store(s) }
