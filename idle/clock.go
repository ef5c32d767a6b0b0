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
	now   atomic.Int64                   // number of moves
	moves atomic.Pointer[[]atomic.Int64] // the time of move n at n modulo the length; longer when more is to be remembered
	first atomic.Int64                   // those before it were forgotten when there was less memory
}

// spareMoves is how many more moves are remembered than the ticks of a timeout: the clock and the wheel round up.
const spareMoves = 8

// init starts a clock that remembers its moves for at least the given time.
func (c *clock) init(tick, memory time.Duration) {
	c.start, c.tick = time.Now(), tick
	c.moves.Store(newMoves(tick, memory))
}

func newMoves(tick, memory time.Duration) *[]atomic.Int64 {
	return new(make([]atomic.Int64, memory/tick+spareMoves))
}

// remember makes the clock remember its moves for at least the given time, from now on and as far as it has so far. It must
// not overlap with move.
func (c *clock) remember(memory time.Duration) {
	old := *c.moves.Load()
	if memory <= c.memory() {
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

// memory returns how long a stamp is good for.
func (c *clock) memory() time.Duration {
	return time.Duration(len(*c.moves.Load())-spareMoves) * c.tick
}

// oldest returns the first move that is remembered, when the last one is now. One is being overwritten.
func (c *clock) oldest(now int64) int64 {
	return max(c.first.Load(), now-int64(len(*c.moves.Load()))+2)
}

// remembers reports whether the bounds of a stamp are known.
func (c *clock) remembers(stamp int64) bool { return stamp >= c.oldest(c.now.Load()) }

// elapsed reads the real clock.
func (c *clock) elapsed() time.Duration { return time.Since(c.start) }

// move moves the clock on to the time that elapsed returns, if at least one multiple of the tick has passed since its
// last move.
func (c *clock) move(elapsed func() time.Duration) {
	now, at := c.now.Load(), elapsed()
	if at/c.tick <= c.at(now)/c.tick {
		return
	}
	moves := *c.moves.Load()
	next := &moves[(now+1)%int64(len(moves))]
	next.Store(int64(at))
	c.now.Store(now + 1)
	// The process may have been stopped since the time was read, and others may have read the old stamp meanwhile. They
	// have not from here on: this is the time that bounds it.
	next.Store(int64(elapsed()))
}

// at returns the time of move n, which must be one of the last.
func (c *clock) at(n int64) time.Duration {
	moves := *c.moves.Load()
	return time.Duration(moves[n%int64(len(moves))].Load())
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
	return c.at(max(stamp+1, c.oldest(now)))
}

// after returns an instant after which an event with this stamp has happened.
func (c *clock) after(stamp int64) time.Duration {
	return c.at(max(stamp, c.oldest(c.now.Load())))
}

// stamp returns the stamp of an event at the given instant.
func (c *clock) stamp(at time.Duration) int64 {
	now := c.now.Load()
	oldest := c.oldest(now)
	moves := int(now-oldest) + 1
	later := sort.Search(moves, func(i int) bool { return c.at(oldest+int64(i)) > at })
	return oldest + int64(max(later-1, 0))
}

// unwrap returns the stamp whose low 32 bits are given, if it is not after now nor 2^32 moves before it.
func unwrap(low uint32, now int64) int64 { return now - int64(uint32(now)-low) }

// pack returns an instant in 32 bits: the number of the tick in which it lies, rounded up, so that no deadline that is
// counted from it comes early. It is never 0.
func (c *clock) pack(at time.Duration) uint32 {
	return max(uint32((at+c.tick-1)/c.tick), 1) // 0 comes round every 2^32 ticks
}

// packNow packs the instant of now, by the real clock: a stamp would do only as long as it can still be asked when the clock moved on.
func (c *clock) packNow() uint32 { return c.pack(c.elapsed()) }

// packSome is pack, but 0 for 0, which is none.
func (c *clock) packSome(at time.Duration) uint32 {
	if at == 0 {
		return 0
	}
	return c.pack(at)
}

// unpack returns the instant that was packed, if it lies within 2^31 ticks of now, and 0 for 0.
func (c *clock) unpack(low uint32, now time.Duration) time.Duration {
	if low == 0 {
		return 0
	}
	n := int64(now / c.tick)
	return time.Duration(n+int64(int32(low-uint32(n)))) * c.tick
}

// clamp brings an instant that was packed long ago nearer, before it gets out of reach of unpack: to 2^30 ticks ago, which is
// longer than any limit.
func (c *clock) clamp(low *uint32, now time.Duration) {
	if n := uint32(now / c.tick); *low != 0 && int32(n-*low) > 1<<30 {
		*low = max(n-1<<30, 1)
	}
}
