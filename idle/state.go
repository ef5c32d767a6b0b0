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

// A state holds the facts about one connection that not every message needs. The others are in its
// record of the table. Owned by the loop goroutine.
type state struct {
	conn      gnet.Conn // gnet's own, or a wrapper that hides it; nil if the state is free
	timer     wheel.Handle
	instants  [instants]uint32 // packed by the clock; 0 for none
	lastMoved uint32           // the counter of CheckOutput
	received  uint32           // the counter of CountReceived
	leftover  uint32           // bytes left in gnet's buffer, if the record has the flag Leftover
	limits    uint16           // index into the limitsTable of the loop
	holds     uint32           // calls of Hold minus calls of Release
	flags     flags
}

func (s *state) used() bool          { return s.conn != nil }
func (s *state) is(c gnet.Conn) bool { return s.conn != nil && address(s.conn) == address(c) }

// The instants of a state. They match the fields of verdict.Facts.
const (
	atOpened = iota
	atHeard  // bounds the last read if the clock does not remember the stamp in the record
	atWrote
	atStalled
	atOver
	atRated
	atPinged
	atNoticed // the last event ReadIdle; those of WriteIdle and AllIdle follow

	instants = atNoticed + idleReasons
)

// flags are booleans about a connection. The low bits count the pings that were not answered.
type flags uint8

const (
	missedMask flags = maxMaxMissed
	undated    flags = 0x10 // the kernel does not report when bytes were sent
	exempt     flags = 0x20 // Conn.Exempt
	leaving    flags = 0x40 // the goodbye for MaxAge was sent
	observed   flags = 0x80 // ObserveOnly kept it open; it is not judged any more
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

// stampStep is the largest distance between the bounds of an instant that has no stamp: two steps
// of the coarsest kernel clock.
const stampStep = 2 * kernel.CoarsestStep

// facts collects the facts about a connection at an instant of the real clock. It changes nothing.
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
		f.Wrote = f.Opened.Or(l.span(to)) // it is older than Opened after a Touch in a slow OnOpen
	}
	lim := l.limitsOf(s)
	if lim.PollOutput() > 0 || lim.Drain != (verdict.Drain{}) {
		f.Output = s.conn.OutboundBuffered()
	}
	if f.Missed > 0 && !lim.Heartbeat.PongsOnly && f.Heard.To > f.LastPing-lim.Tick {
		// Any byte is an answer.
		f.Missed = 0
	}
	return f
}

// keepInReach keeps the instants of a connection within the range of 32 bits and the memory of the
// clock. Each judgement calls it, so it is called at least once per horizon.
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
	if stamp < last { // otherwise the bound may still grow
		s.instants[atHeard] = l.clock.Pack(l.clock.Before(stamp, now))
	}
}

// heard returns the bounds of the last read. They come from the stamp in the record. If the clock
// has forgotten that stamp, the upper bound is the one that keepInReach has stored.
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

// span returns the bounds of a packed instant. The upper bound was rounded up to a tick. The lower
// one was at most a tick or two steps of the kernel clock earlier.
func (l *loop) span(to time.Duration) verdict.Span {
	return verdict.Span{From: to - l.clock.Tick() - max(l.clock.Tick(), stampStep), To: to}
}

// keepEvidence updates the facts with the kernel's answer, and stores them.
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
		if lim.CheckOutput(f, ev, &s.lastMoved, now) {
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

// random returns a number from 0 to 1 that stays the same for the life of a connection. It needs no
// memory.
func random(id, opened uint32) float64 {
	x := uint64(opened)<<32 | uint64(id)
	// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}
