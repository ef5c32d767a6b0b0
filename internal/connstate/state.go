// Package connstate keeps the facts about a connection between two judgements.
//
// A million connections need a million states, so a State holds 32-bit instants and counters. Facts
// turns it into the form that package verdict judges.
package connstate

import (
	"math"
	"time"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/kernel"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// A State holds the facts about one connection that not every message needs. The others are in its
// record of the table. The zero State belongs to no connection; Open begins its life. Not safe for
// concurrent use.
type State struct {
	opened  mono.Packed
	heard   mono.Packed // of the last Touch with touched, or bounds a read with a forgotten stamp
	wrote   mono.Packed
	stalled mono.Packed
	over    mono.Packed
	rated   mono.Packed
	pinged  mono.Packed
	ended   mono.Packed                      // the peer had ended its side by then
	noticed [verdict.IdleReasons]mono.Packed // the last event of each idle reason

	lastMoved uint32 // the counter of CheckOutput
	received  uint32 // the counter of CountReceived
	holds     uint32 // calls of Hold minus calls of Release

	// Own is for the owner of the State. So is LimitsID, the number of the limits that apply.
	Own      uint32
	LimitsID uint16

	missed uint8 // pings since the last answer
	flags  Flags
}

// Flags are conditions of a connection.
type Flags uint8

const (
	undated    Flags = 1 << iota // the kernel does not report when bytes were sent
	Exempt                       // out of all limits
	Leaving                      // the goodbye for the maximum age was sent
	Observed                     // spared although a limit was exceeded
	noPings                      // the protocol has no room for a ping
	Unwritable                   // output has passed the high mark, and not fallen to the low one
	touched                      // a Touch may be later than the last read
)

// Is reports whether one of some flags is set.
func (s *State) Is(f Flags) bool { return s.flags&f != 0 }

func (s *State) set(f Flags, on bool) {
	s.flags &^= f
	if on {
		s.flags |= f
	}
}

// stampStep is the largest distance between the bounds of an instant that has no stamp: two steps
// of the coarsest kernel clock.
const stampStep = 2 * kernel.CoarsestStep

// Open records that the connection was opened. With rate.Always its first message begins.
func (s *State) Open(clock *mono.Clock, rate verdict.Rate, now mono.Time) {
	s.opened = clock.Pack(now)
	if rate.Always {
		s.rated = clock.Pack(now.Add(rate.Grace))
	}
}

// Used reports whether the State belongs to a connection.
func (s *State) Used() bool { return s.opened != 0 }

// Opened returns the instant at which the connection was opened.
func (s *State) Opened() mono.Packed { return s.opened }

// Judged reports whether the connection is judged: it is neither exempt nor observed.
func (s *State) Judged() bool { return !s.Is(Exempt | Observed) }

// Held reports whether the server works on a request.
func (s *State) Held() bool { return s.holds > 0 }

// Polled reports whether waiting output is known, so that the connection is judged often.
func (s *State) Polled() bool { return s.stalled != 0 || s.over != 0 }

// Hold begins the work on a request.
func (s *State) Hold() { s.holds++ }

// Release ends a Hold. It reports whether that was the last one. Without a Hold it does nothing.
func (s *State) Release() (last bool) {
	if s.holds == 0 {
		return false
	}
	s.holds--
	return s.holds == 0
}

// AllowPings says whether the protocol has room for a ping, as it has at first. Otherwise no
// heartbeat applies.
func (s *State) AllowPings(on bool) { s.set(noPings, !on) }

// SetWritable says whether producers may write.
func (s *State) SetWritable(on bool) { s.set(Unwritable, !on) }

// Spare sets or clears Exempt or Observed. The output of such a connection is not checked, so what
// is known of it may not hold any more.
func (s *State) Spare(flag Flags, on bool) {
	s.set(flag, on)
	s.stalled, s.over = 0, 0
}

// Touch restarts the idle timeouts. The record keeps the last read: a Touch says nothing about the
// peer.
func (s *State) Touch(clock *mono.Clock) {
	s.heard = clock.PackNow()
	s.wrote = s.heard
	s.set(touched, true)
}

// Touched returns the instant of the last Touch, 0 if there was none or a later read is known.
func (s *State) Touched() mono.Packed {
	if !s.Is(touched) {
		return 0
	}
	return s.heard
}

// Alive records a sign of life that is an answer to all pings.
func (s *State) Alive(clock *mono.Clock) {
	s.missed = 0
	if !s.Is(Leaving) {
		s.pinged = clock.PackNow()
	}
}

// Ping records that a ping is sent. The Facts are those of before.
func (s *State) Ping(clock *mono.Clock, f *verdict.Facts, now mono.Time) {
	s.missed, s.pinged = uint8(f.Missed+1), clock.Pack(now)
}

// Pings returns how many pings were recorded since the last answer.
func (s *State) Pings() uint8 { return s.missed }

// SendPing records that a ping is sent now that was recorded as the nth since the last answer. What
// was recorded while it waited to be sent does not count.
func (s *State) SendPing(clock *mono.Clock, n uint8) {
	if s.missed > 0 && !s.Is(Leaving) {
		s.missed, s.pinged = min(s.missed, n), clock.PackNow()
	}
}

// Leave records that the connection gets its goodbye.
func (s *State) Leave(clock *mono.Clock, now mono.Time) {
	s.set(Leaving, true)
	s.pinged = clock.Pack(now)
}

// Notice records an idle event.
func (s *State) Notice(clock *mono.Clock, r verdict.Reason, now mono.Time) {
	s.noticed[r-reap.ReadIdle] = clock.Pack(now)
}

// BeginMessage begins a window of rate, unless a message is open. It reports whether it did.
func (s *State) BeginMessage(clock *mono.Clock, rate verdict.Rate) bool {
	if s.rated != 0 || rate.BytesPerSecond == 0 {
		return false
	}
	s.rated, s.received = packAfter(clock, rate.Grace), 0
	return true
}

// EndMessage ends a message. With rate.Always the next one begins.
func (s *State) EndMessage(clock *mono.Clock, rate verdict.Rate) {
	s.rated, s.received = 0, 0
	if rate.Always {
		s.rated = packAfter(clock, rate.Grace)
	}
}

// packAfter packs the instant that is d after now.
func packAfter(clock *mono.Clock, d time.Duration) mono.Packed {
	return clock.Pack(clock.Elapsed().Add(d))
}

// Facts returns the facts at an instant of the real clock. It changes nothing. The output waits in
// the buffer of the event loop.
func (s *State) Facts(clock *mono.Clock, r *conntable.Record, lim *verdict.Limits, output int, now mono.Time) verdict.Facts {
	instant := func(p mono.Packed) mono.Time { return clock.Unpack(clock.Clamp(p, now), now) }
	f := verdict.Facts{
		Opened: span(clock, instant(s.opened)), Heard: s.LastHeard(clock, r, now),
		Fresh: r.Has(conntable.Fresh), Ready: r.Has(conntable.Ready), Held: s.Held(), NoPings: s.Is(noPings), Blind: s.Is(undated),
		Output: output, StalledSince: instant(s.stalled), OverSince: instant(s.over),
		RatedSince: instant(s.rated), Counting: s.received != 0,
		LastPing: instant(s.pinged), Missed: int(s.missed), Leaving: s.Is(Leaving),
		EndedSince: instant(s.ended),
	}
	for i, p := range s.noticed {
		f.Noticed[i] = instant(p)
	}
	f.Wrote = f.Opened
	if to := instant(s.wrote); to != 0 {
		f.Wrote = f.Opened.Or(span(clock, to)) // it is older than Opened after a Touch in a slow OnOpen
	}
	if f.Missed > 0 && !lim.Heartbeat.PongsOnly && f.Heard.To > f.LastPing.Add(-lim.Tick) {
		// Any byte is an answer.
		f.Missed = 0
	}
	return f
}

// LastHeard returns the bounds of the last read or Touch. Those of the read come from the stamp in
// the record. If the clock has forgotten that stamp, the upper bound is the one that KeepInReach
// has stored.
func (s *State) LastHeard(clock *mono.Clock, r *conntable.Record, now mono.Time) verdict.Span {
	stamp := r.Heard.Unwrap(clock.Stamp())
	isKnown, last := clock.Remembers(stamp), verdict.Span{}
	switch {
	case isKnown:
		last = verdict.Span{From: clock.After(stamp), To: clock.Before(stamp, now)}
	case s.heard == 0:
		return verdict.Span{From: 0, To: clock.Before(stamp, now)}
	}
	if !isKnown || s.Is(touched) {
		last = last.Or(span(clock, clock.Unpack(clock.Clamp(s.heard, now), now)))
	}
	return last
}

// span returns the bounds of a packed instant. The upper bound was rounded up to a tick. The lower
// one was at most a tick or two steps of the kernel clock earlier.
func span(clock *mono.Clock, to mono.Time) verdict.Span {
	return verdict.Span{From: to.Add(-clock.Tick() - max(clock.Tick(), stampStep)), To: to}
}

// instants returns all instants.
func (s *State) instants() [8 + verdict.IdleReasons]*mono.Packed {
	return [...]*mono.Packed{
		&s.opened, &s.heard, &s.wrote, &s.stalled, &s.over, &s.rated, &s.pinged, &s.ended,
		&s.noticed[0], &s.noticed[1], &s.noticed[2],
	}
}

// KeepInReach keeps the instants of a connection within the range of 32 bits and the memory of the
// clock. Each judgement calls it, so it is called at least once per horizon.
func (s *State) KeepInReach(clock *mono.Clock, r *conntable.Record, now mono.Time) {
	for _, p := range s.instants() {
		*p = clock.Clamp(*p, now)
	}
	last := clock.Stamp()
	stamp := r.Heard.Unwrap(last)
	if last-stamp > math.MaxInt32 {
		stamp = last - math.MaxInt32
		r.Heard = stamp.Short()
	}
	if !clock.Remembers(stamp) {
		return
	}
	bound := clock.Before(stamp, now)
	if s.Is(touched) && clock.Unpack(s.heard, now) > bound {
		return
	}
	s.heard = 0
	s.set(touched, false)
	if stamp < last { // otherwise the bound may still grow
		s.heard = clock.Pack(bound)
	}
}

// Learn updates the Facts with the kernel's answer, and keeps them. It reports whether the kernel
// has a later byte of the peer than the facts had. The instant now is after the question.
func (s *State) Learn(
	clock *mono.Clock, r *conntable.Record, lim *verdict.Limits, f *verdict.Facts, ev *verdict.Evidence, now mono.Time,
) (heard bool) {
	if heard = lim.Hear(f, ev, now); heard {
		r.Heard = clock.StampAt(f.Heard.To).Short()
		s.pinged = clock.PackSome(f.LastPing)
	}
	if !f.Fresh {
		r.Set(conntable.Fresh, false)
	}
	s.set(undated, !ev.Dated)
	s.ended = clock.PackSome(f.EndedSince)
	if lim.PollOutput() > 0 || lim.Write > 0 || lim.All > 0 || lim.Heartbeat.Interval > 0 || lim.Drain != (verdict.Drain{}) {
		if lim.CheckOutput(f, ev, &s.lastMoved, now) {
			s.wrote = clock.Pack(f.Wrote.To)
		}
		s.stalled = clock.PackSome(f.StalledSince)
		s.over = clock.PackSome(f.OverSince)
	}
	s.missed = uint8(f.Missed)
	if f.RatedSince != 0 {
		lim.CountReceived(f, ev, &s.received, now)
		s.rated = clock.PackSome(f.RatedSince)
	}
	return heard
}

// Adapt brings the state in line with other limits, so that a limit that is switched on again does
// not use old values.
func (s *State) Adapt(clock *mono.Clock, before, lim *verdict.Limits) {
	if lim.PollOutput() == 0 {
		s.stalled, s.over = 0, 0
	}
	if lim.Output.Soft == 0 {
		s.over = 0
	}
	s.adaptPings(clock, before, lim)
	switch rate := lim.Rate; {
	case rate.BytesPerSecond == 0, before.Rate.Always && !rate.Always:
		s.rated, s.received = 0, 0
	case rate.Always && s.rated == 0:
		s.rated, s.received = packAfter(clock, rate.Grace), 0
	}
}

func (s *State) adaptPings(clock *mono.Clock, before, lim *verdict.Limits) {
	if s.Is(Leaving) {
		now := clock.Elapsed()
		if lim.Age == 0 || now < clock.Unpack(s.opened, now).Add(lim.LeastAge()) {
			s.set(Leaving, false)
			s.missed, s.pinged = 0, clock.PackNow()
		}
	}
	switch {
	case lim.Heartbeat.Interval == 0:
		s.missed = 0
	case lim.Heartbeat.PongsOnly != before.Heartbeat.PongsOnly && !s.Is(Leaving):
		// Otherwise all old connections would get a ping at once, and bytes between two pings would
		// count for none.
		s.missed, s.pinged = 0, clock.PackNow()
	}
}

// Random returns a number from 0 to 1 that stays the same for the life of the connection with a
// number. It needs no memory.
func (s *State) Random(id uint32) float64 {
	return float64(Mix(uint64(s.opened)<<32|uint64(id))>>11) / (1 << 53)
}

// Mix returns another number for each number, of which each bit depends on all bits. It is the
// finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
