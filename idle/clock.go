package idle

import (
	"sort"
	"sync/atomic"
	"time"
)

// A clock is a coarse clock: a number that the driver moves on by one each tick, and that a heartbeat reads with one
// atomic load, since reading the real clock costs more than all the rest of a heartbeat.
//
// Its price is that it may stand still while time goes on: between two ticks, while the driver sleeps or is late, while
// the process is stopped. What was stamped n happened before the clock moved on to n+1, and no more is known. So the
// clock remembers the real time of its moves, and bounds a stamp from above by the move that followed it. Judged by that
// bound nobody is idle too early, however long the clock stood still.
//
// All instants are durations since start. Safe for concurrent use, but for calls of move, which must not overlap.
type clock struct {
	start time.Time
	tick  time.Duration
	now   atomic.Int64   // number of moves
	moves []atomic.Int64 // the time of move n at n modulo the length
}

// init starts a clock that remembers its moves for at least the given time.
func (c *clock) init(tick, memory time.Duration) {
	c.start, c.tick, c.moves = time.Now(), tick, make([]atomic.Int64, memory/tick+8)
}

// elapsed reads the real clock.
func (c *clock) elapsed() time.Duration { return time.Since(c.start) }

// move moves the clock on to the time that elapsed returns, if at least one multiple of the tick has passed since its
// last move.
func (c *clock) move(elapsed func() time.Duration) {
	now, at := c.now.Load(), elapsed()
	if at/c.tick <= c.at(now)/c.tick {
		return
	}
	next := &c.moves[(now+1)%int64(len(c.moves))]
	next.Store(int64(at))
	c.now.Store(now + 1)
	// The process may have been stopped since the time was read, and others may have read the old stamp meanwhile. They
	// have not from here on: this is the time that bounds it.
	next.Store(int64(elapsed()))
}

// at returns the time of move n, which must be one of the last.
func (c *clock) at(n int64) time.Duration {
	return time.Duration(c.moves[n%int64(len(c.moves))].Load())
}

// read returns the time of the last move.
func (c *clock) read() time.Duration { return c.at(c.now.Load()) }

// before returns an instant before which an event with this stamp has happened. For the current stamp it is not known
// yet; the next regular move is assumed.
func (c *clock) before(stamp int64) time.Duration {
	now := c.now.Load()
	if stamp >= now {
		return c.at(now) + c.tick
	}
	// Older moves are forgotten. Since as many ticks have passed as there have been moves, one of the memory's length
	// is as good as any: whoever was heard before it is idle.
	return c.at(max(stamp+1, now-int64(len(c.moves))+2))
}

// after returns an instant after which an event with this stamp has happened.
func (c *clock) after(stamp int64) time.Duration {
	return c.at(max(stamp, c.now.Load()-int64(len(c.moves))+2))
}

// stamp returns the stamp of an event at the given instant.
func (c *clock) stamp(at time.Duration) int64 {
	now := c.now.Load()
	oldest := max(0, now-int64(len(c.moves))+2)
	moves := int(now-oldest) + 1
	later := sort.Search(moves, func(i int) bool { return c.at(oldest+int64(i)) > at })
	return oldest + int64(max(later-1, 0))
}

// unwrap returns the stamp whose low 32 bits are given, if it is not after now nor 2^32 moves before it.
func unwrap(low uint32, now int64) int64 { return now - int64(uint32(now)-low) }
