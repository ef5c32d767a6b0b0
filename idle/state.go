package idle

import (
	"math"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/coarse"
	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/kernel"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/wheel"
)

// A state is what a loop knows of one connection, apart from what every message needs, which is in its record of the table.
// Owned by the loop goroutine.
type state struct {
	conn     gnet.Conn // gnet's own, unless it is wrapped and cannot be found; nil if the state is free
	timer    wheel.Handle
	instants [instants]uint32 // packed by the clock; 0 for none
	moved    uint32           // the counter of output, as of the last look
	received uint32           // bytes that had come when the window of MinRate began
	leftover uint32           // bytes that the handler left in gnet's buffer, if the record says so
	limits   uint16           // index into those of the loop
	holds    uint32           // calls of Hold less those of Release
	flags    flags
}

func (s *state) used() bool          { return s.conn != nil }
func (s *state) is(c gnet.Conn) bool { return s.conn != nil && address(s.conn) == address(c) }

// The instants of a state; see verdict.Facts for what they mean.
const (
	atOpened = iota
	atHeard  // set at each look, for when the stamp in the record is too old to tell
	atWrote
	atStalled
	atOver
	atRated
	atPinged
	atNoticed // of ReadIdle, and then WriteIdle and AllIdle

	instants = atNoticed + idleReasons
)

// flags are what is true or not about a connection, and in the low bits how many pings were missed.
type flags uint8

const (
	missedMask flags = maxMaxMissed
	undated    flags = 0x10 // nobody knows when something was sent
	exempt     flags = 0x20
	leaving    flags = 0x40
	observed   flags = 0x80 // ObserveOnly has spared it
)

func (f flags) has(flag flags) bool { return f&flag != 0 }

func (f *flags) set(flag flags, on bool) {
	*f &^= flag
	if on {
		*f |= flag
	}
}

func (f flags) missed() int { return int(f & missedMask) }

func (f *flags) setMissed(n int) { *f = *f&^missedMask | flags(n)&missedMask }

// stampStep is how far the bounds of an instant lie apart at most that was not stamped: two steps of
// the coarsest clock of a kernel.
const stampStep = 2 * kernel.CoarsestStep

// facts collects what is known of a connection at an instant of the real clock. It changes nothing.
func (l *loop) facts(r *conntable.Record, id uint32, s *state, now time.Duration) verdict.Facts {
	instant := func(i int) time.Duration { return l.clock.Unpack(l.clock.Clamp(s.instants[i], now), now) }
	f := verdict.Facts{
		Opened: l.span(instant(atOpened)), Heard: l.heard(r, s, now),
		Fresh: r.Has(conntable.Fresh), Ready: r.Has(conntable.Ready), Held: s.holds > 0, Blind: s.flags.has(undated),
		StalledSince: instant(atStalled), OverSince: instant(atOver),
		RatedSince: instant(atRated), Counting: s.received != 0,
		LastPing: instant(atPinged), Missed: s.flags.missed(), Leaving: s.flags.has(leaving),
		Random: random(id, s.instants[atOpened]),
	}
	for i := range f.Noticed {
		f.Noticed[i] = instant(atNoticed + i)
	}
	f.Wrote = f.Opened
	if to := instant(atWrote); to != 0 {
		f.Wrote = f.Opened.Or(l.span(to)) // it may be a Touch in a slow OnOpen
	}
	lim := l.limitsOf(s)
	if lim.PollOutput() > 0 || lim.Drain != (verdict.Drain{}) {
		f.Output = s.conn.OutboundBuffered()
	}
	if f.Missed > 0 && !lim.Heartbeat.PongsOnly && f.Heard.To > f.LastPing-lim.Tick { // any byte is an answer
		f.Missed = 0
	}
	return f
}

// keepInReach keeps what is known of a connection within reach of 32 bits and of the memory of the clock.
// Each judgement calls it, so that it is called at least once in the horizon.
func (l *loop) keepInReach(r *conntable.Record, s *state, now time.Duration) {
	for i := range s.instants {
		s.instants[i] = l.clock.Clamp(s.instants[i], now)
	}
	last := l.clock.Stamp()
	stamp := coarse.Unwrap(r.Heard, last)
	if last-stamp > math.MaxInt32 {
		stamp = last - math.MaxInt32
		r.Heard = uint32(stamp)
	}
	if !l.clock.Remembers(stamp) {
		return
	}
	s.instants[atHeard] = 0
	if stamp < last { // otherwise the bound may still move
		s.instants[atHeard] = l.clock.Pack(l.clock.Before(stamp, now))
	}
}

// heard returns when the peer was heard last: as the stamp says, or, when the clock has forgotten
// about that, as renew has kept it.
func (l *loop) heard(r *conntable.Record, s *state, now time.Duration) verdict.Span {
	stamp := coarse.Unwrap(r.Heard, l.clock.Stamp())
	switch known := s.instants[atHeard]; {
	case l.clock.Remembers(stamp):
		return verdict.Span{From: l.clock.After(stamp), To: l.clock.Before(stamp, now)}
	case known != 0:
		return l.span(l.clock.Unpack(l.clock.Clamp(known, now), now))
	}
	return verdict.Span{From: 0, To: l.clock.Before(stamp, now)}
}

// span returns the bounds of an instant that was packed. The upper one was rounded up to a tick, and
// lay at most a tick or two steps of the kernel above the lower one.
func (l *loop) span(to time.Duration) verdict.Span {
	return verdict.Span{From: to - l.clock.Tick() - max(l.clock.Tick(), stampStep), To: to}
}

// keepEvidence takes into account what the kernel knows of a connection, and keeps it.
func (l *loop) keepEvidence(r *conntable.Record, s *state, f *verdict.Facts, ev *verdict.Evidence, now time.Duration, seemsDead bool) {
	lim := l.limitsOf(s)
	if lim.Hear(f, ev, now) {
		if seemsDead {
			l.counters.SavedByKernel++
		}
		r.Heard = uint32(l.clock.StampAt(f.Heard.To))
		l.noteHeard(coarse.Unwrap(r.Heard, l.clock.Stamp()))
		s.instants[atPinged] = l.clock.PackSome(f.LastPing)
	}
	if !f.Fresh {
		r.Set(conntable.Fresh, false)
	}
	s.flags.set(undated, !ev.Dated)
	if !ev.Dated && !l.reaper.undated.Load() {
		l.reaper.undated.Store(true)
	}
	if lim.PollOutput() > 0 || lim.Write > 0 || lim.All > 0 || lim.Heartbeat.Interval > 0 || lim.Drain != (verdict.Drain{}) {
		if lim.CheckOutput(f, ev, &s.moved, now) {
			s.instants[atWrote] = l.clock.Pack(f.Wrote.To)
		}
		s.instants[atStalled] = l.clock.PackSome(f.StalledSince)
		s.instants[atOver] = l.clock.PackSome(f.OverSince)
	}
	s.flags.setMissed(f.Missed)
	if f.RatedSince != 0 {
		lim.CountReceived(f, ev, &s.received, now)
		s.instants[atRated] = l.clock.PackSome(f.RatedSince)
	}
}

// random returns a number from 0 to 1 that stays the same as long as a connection lives, and needs no
// memory.
func random(id, opened uint32) float64 {
	x := uint64(opened)<<32 | uint64(id)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}
