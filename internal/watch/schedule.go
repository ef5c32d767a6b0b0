package watch

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/wheel"
)

// A Schedule says when each connection of a Shard is looked at next. Not safe for concurrent use.
type Schedule struct {
	clock *mono.Clock
	wheel *wheel.Wheel[uint32]       // numbers of connections
	look  func(wheel.Handle, uint32) // looks at one that is due
	early bool                       // see upcoming
}

func (s *Schedule) init(clock *mono.Clock, tick time.Duration, early bool, look func(wheel.Handle, uint32)) {
	w, err := wheel.New[uint32](tick)
	if err != nil {
		panic("BUG: watch: " + err.Error()) // the Config was checked
	}
	s.clock, s.wheel, s.look, s.early = clock, w, look, early
}

// add schedules the first look at a connection.
func (s *Schedule) add(id uint32, next mono.Time) wheel.Handle {
	return s.wheel.Schedule(s.upcoming(next), id)
}

// at moves the next look at a connection to an instant.
func (s *Schedule) at(timer wheel.Handle, next mono.Time) {
	s.wheel.Reschedule(timer, s.upcoming(next))
}

// by moves the next look at a connection forward to an instant.
func (s *Schedule) by(timer wheel.Handle, next mono.Time) {
	if due, filed := s.wheel.Deadline(timer); !filed || mono.Time(due) > next {
		s.at(timer, next)
	}
}

// upcoming returns the deadline in the wheel of a connection that is to be looked at at an instant.
// It is the tick before that instant, if deadlines count from moves of the clock: they lie as long
// after a tick as that move was late. If the move at that tick is as late, the deadline has passed.
func (s *Schedule) upcoming(next mono.Time) time.Duration {
	if tick := next.Truncate(s.clock.Tick()); s.early && tick > s.clock.Read() {
		return time.Duration(tick)
	}
	return time.Duration(next)
}

// NextDue returns when the next connection is looked at, or [verdict.Never].
func (s *Schedule) NextDue() mono.Time {
	if due, ok := s.wheel.NextDue(); ok {
		return mono.Time(due)
	}
	return verdict.Never
}

// Len returns the number of scheduled looks.
func (s *Schedule) Len() int { return s.wheel.Len() }

// Advance looks at the next connections that are due, up to a number. It reports whether there may
// be more.
func (s *Schedule) Advance(atMost int) (more bool) {
	_, more = s.wheel.Advance(time.Duration(s.clock.Read()), atMost, s.look)
	return more
}
