// Package coarse has a clock that is cheap to read because it moves once per tick.
//
// A driver moves the clock, and a heartbeat reads its number with one atomic load. Reading the real
// clock costs more than the rest of a heartbeat.
//
// The number stands still while time passes: between two ticks, while the driver sleeps or is late,
// and while the process is stopped. An event with stamp n happened before the clock moved to n+1;
// nothing more is known. So the clock remembers the real time of its moves, and the move after a
// stamp bounds it from above. By that bound no connection is idle too early, however long the clock
// stood still.
package coarse

import (
	"sort"
	"sync/atomic"
	"time"
)

// A Clock is a coarse clock. Init makes it ready. All instants are durations since its start. Safe
// for concurrent use, except that calls of Move and Remember must not overlap.
type Clock struct {
	tick    time.Duration
	elapsed func() time.Duration           // the real clock
	now     atomic.Int64                   // number of moves
	moves   atomic.Pointer[[]atomic.Int64] // the time of move n at n modulo the length
	first   atomic.Int64                   // the first move that is known, set by Remember
	moving  atomic.Bool                    // Move has published its number, but not yet its time
}

// spareMoves is the number of moves remembered in addition to the ticks of a timeout, because the
// clock and the wheel round up.
const spareMoves = 8

// Init makes a clock that remembers its moves for at least the given time. The function elapsed
// returns the real time since the start of the clock and never decreases.
func (c *Clock) Init(tick, memory time.Duration, elapsed func() time.Duration) {
	c.tick, c.elapsed = tick, elapsed
	c.moves.Store(newMoves(tick, memory))
}

// Real returns a function that returns the monotonic time since the call of Real.
func Real() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

func newMoves(tick, memory time.Duration) *[]atomic.Int64 {
	return new(make([]atomic.Int64, memory/tick+spareMoves))
}

// Remember makes the clock remember its moves for at least the given time. Moves that it has
// forgotten stay forgotten.
func (c *Clock) Remember(memory time.Duration) {
	old := *c.moves.Load()
	if memory <= c.Memory() {
		return
	}
	longer := newMoves(c.tick, memory)
	now := c.now.Load()
	for n := max(0, now-int64(len(old))+1); n <= now; n++ {
		(*longer)[n%int64(len(*longer))].Store(old[n%int64(len(old))].Load())
	}
	c.first.Store(c.oldest(now))
	c.moves.Store(longer)
}

// Memory returns the time for which the bounds of a stamp are known.
func (c *Clock) Memory() time.Duration {
	return time.Duration(len(*c.moves.Load())-spareMoves) * c.tick
}

// Tick returns the time between two moves.
func (c *Clock) Tick() time.Duration { return c.tick }

// oldest returns the oldest move that is remembered, if the last one is now. One move less than the
// length is safe to read, because Move may be overwriting the oldest one.
func (c *Clock) oldest(now int64) int64 {
	return max(c.first.Load(), now-int64(len(*c.moves.Load()))+2)
}

// Remembers reports whether the bounds of a stamp are known.
func (c *Clock) Remembers(stamp int64) bool { return stamp >= c.oldest(c.now.Load()) }

// Elapsed reads the real clock.
func (c *Clock) Elapsed() time.Duration { return c.elapsed() }

// Stamp returns the number of moves: the stamp of an event that happens now.
func (c *Clock) Stamp() int64 { return c.now.Load() }

// Move moves the clock to the real time, if a multiple of the tick has passed since the last move.
// It returns the times of the last move and of this one. They are equal if the clock did not move.
func (c *Clock) Move() (from, to time.Duration) {
	now, at := c.now.Load(), c.elapsed()
	from = c.at(now)
	if at/c.tick <= from/c.tick {
		return from, from
	}
	moves := *c.moves.Load()
	next := &moves[(now+1)%int64(len(moves))]
	c.moving.Store(true)
	next.Store(int64(at))
	c.now.Store(now + 1)
	// The process may have been stopped since the time was read, and events may have got the old
	// stamp meanwhile. From here on no event gets it, so the time read here bounds it.
	to = c.elapsed()
	next.Store(int64(to))
	c.moving.Store(false)
	return from, to
}

// at returns the time of move n, which must be remembered.
func (c *Clock) at(n int64) time.Duration {
	moves := *c.moves.Load()
	return time.Duration(moves[n%int64(len(moves))].Load())
}

// Read returns the time of the last move.
func (c *Clock) Read() time.Duration { return c.at(c.now.Load()) }

// LastMove returns the times of the last move and of the one before it.
func (c *Clock) LastMove() (from, to time.Duration) {
	now := c.now.Load()
	return c.at(max(now-1, c.oldest(now))), c.at(now)
}

// Before returns an instant before which an event with this stamp happened. The caller passes a
// reading of the real clock after the event as now. It is the only bound of the current stamp,
// because the next move may be late, and of the stamp before it while the clock moves.
func (c *Clock) Before(stamp int64, now time.Duration) time.Duration {
	last := c.now.Load()
	if stamp >= last || stamp == last-1 && c.moving.Load() {
		return max(now, c.at(last))
	}
	// Older moves are forgotten. At least one tick passes per move, so the oldest move is older
	// than the memory, and a connection that was heard before it is idle.
	return c.at(max(stamp+1, c.oldest(last)))
}

// After returns an instant after which an event with this stamp happened.
func (c *Clock) After(stamp int64) time.Duration {
	return c.at(max(stamp, c.oldest(c.now.Load())))
}

// StampAt returns the stamp of an event at the given instant.
func (c *Clock) StampAt(at time.Duration) int64 {
	now := c.now.Load()
	oldest := c.oldest(now)
	moves := int(now-oldest) + 1
	later := sort.Search(moves, func(i int) bool { return c.at(oldest+int64(i)) > at })
	return oldest + int64(max(later-1, 0))
}

// Unwrap returns the stamp that ends in the given 32 bits and lies less than 2^32 moves before now.
func Unwrap(low uint32, now int64) int64 { return now - int64(uint32(now)-low) }

// Pack returns an instant in 32 bits: its number of ticks, rounded up, so that no deadline that is
// counted from it comes early. The result is never 0.
func (c *Clock) Pack(at time.Duration) uint32 {
	return max(uint32((at+c.tick-1)/c.tick), 1) // the count wraps to 0 every 2^32 ticks
}

// PackNow packs the real time. Unlike a stamp, the result outlives the memory of the clock.
func (c *Clock) PackNow() uint32 { return c.Pack(c.elapsed()) }

// PackSome is Pack, except that it returns 0, no instant, for 0.
func (c *Clock) PackSome(at time.Duration) uint32 {
	if at == 0 {
		return 0
	}
	return c.Pack(at)
}

// Unpack returns the packed instant if it lies within 2^31 ticks of now. It returns 0 for 0.
func (c *Clock) Unpack(low uint32, now time.Duration) time.Duration {
	if low == 0 {
		return 0
	}
	n := int64(now / c.tick)
	return time.Duration(n+int64(int32(low-uint32(n)))) * c.tick
}

// Clamp returns a packed instant. If the instant is more than 2^30 ticks old, which is longer than
// any limit, Clamp returns the one of 2^30 ticks ago, so that it stays in the range of Unpack.
func (c *Clock) Clamp(low uint32, now time.Duration) uint32 {
	if n := uint32(now / c.tick); low != 0 && int32(n-low) > 1<<30 {
		return max(n-1<<30, 1)
	}
	return low
}
