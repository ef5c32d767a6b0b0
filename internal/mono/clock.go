package mono

import (
	"sort"
	"sync/atomic"
	"time"
)

// A Stamp is a reading of the number of a Clock.
type Stamp int64

// A ShortStamp has the low 32 bits of a Stamp.
type ShortStamp uint32

// Short returns the low 32 bits.
func (s Stamp) Short() ShortStamp { return ShortStamp(s) }

// Unwrap returns the Stamp with these low bits that lies less than 2^32 moves before now.
func (s ShortStamp) Unwrap(now Stamp) Stamp { return now - Stamp(now.Short()-s) }

// A Packed is an instant in 32 bits, counted in ticks; 0 is no instant. See [Clock.Pack].
type Packed uint32

// A Clock is a coarse clock. Init makes it ready. Safe for concurrent use, except that calls of
// Move and Remember must not overlap.
type Clock struct {
	tick    time.Duration
	elapsed func() Time                    // the real clock
	now     atomic.Int64                   // number of moves
	moves   atomic.Pointer[[]atomic.Int64] // the time of move n at n modulo the length
	first   atomic.Int64                   // the first move that is known, set by Remember
	moving  atomic.Bool                    // Move has published its number, but not yet its time
}

// spareMoves is the number of moves remembered in addition to the ticks of a timeout, because the
// clock and the wheel round up.
const spareMoves = 8

// Init makes a clock that remembers its moves for at least the given time. The function elapsed
// reads the real clock and never decreases.
func (c *Clock) Init(tick, memory time.Duration, elapsed func() Time) {
	c.tick, c.elapsed = tick, elapsed
	c.moves.Store(newMoves(tick, memory))
}

// Real returns a real clock. It starts with the call of Real.
func Real() func() Time {
	start := time.Now()
	return func() Time { return Time(time.Since(start)) }
}

func newMoves(tick, memory time.Duration) *[]atomic.Int64 {
	moves := make([]atomic.Int64, memory/tick+spareMoves)
	return &moves
}

// Remember makes the clock remember its moves for at least the given time. Moves that it has
// forgotten stay forgotten.
func (c *Clock) Remember(memory time.Duration) {
	old := *c.moves.Load()
	if memory <= c.Memory() {
		return
	}
	longer := newMoves(c.tick, memory)
	now := c.Stamp()
	for n := max(0, now-Stamp(len(old))+1); n <= now; n++ {
		(*longer)[n%Stamp(len(*longer))].Store(old[n%Stamp(len(old))].Load())
	}
	c.first.Store(int64(c.oldest(now)))
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
func (c *Clock) oldest(now Stamp) Stamp {
	return max(Stamp(c.first.Load()), now-Stamp(len(*c.moves.Load()))+2)
}

// Remembers reports whether the bounds of a stamp are known.
func (c *Clock) Remembers(stamp Stamp) bool { return stamp >= c.oldest(c.Stamp()) }

// Elapsed reads the real clock.
func (c *Clock) Elapsed() Time { return c.elapsed() }

// Stamp returns the number of moves: the stamp of an event that happens now.
func (c *Clock) Stamp() Stamp { return Stamp(c.now.Load()) }

// Move moves the clock to the real time, if a multiple of the tick has passed since the last move.
// It returns the times of the last move and of this one. They are equal if the clock did not move.
func (c *Clock) Move() (from, to Time) {
	now, at := c.Stamp(), c.elapsed()
	from = c.at(now)
	if at.Truncate(c.tick) <= from.Truncate(c.tick) {
		return from, from
	}
	moves := *c.moves.Load()
	next := &moves[(now+1)%Stamp(len(moves))]
	c.moving.Store(true)
	next.Store(int64(at))
	c.now.Store(int64(now + 1))
	// The process may have been stopped since the time was read, and events may have got the old
	// stamp meanwhile. From here on no event gets it, so the time read here bounds it.
	to = c.elapsed()
	next.Store(int64(to))
	c.moving.Store(false)
	return from, to
}

// at returns the time of move n, which must be remembered.
func (c *Clock) at(n Stamp) Time {
	moves := *c.moves.Load()
	return Time(moves[n%Stamp(len(moves))].Load())
}

// Read returns the time of the last move.
func (c *Clock) Read() Time { return c.at(c.Stamp()) }

// LastMove returns the times of the last move and of the one before it.
func (c *Clock) LastMove() (from, to Time) {
	now := c.Stamp()
	return c.at(max(now-1, c.oldest(now))), c.at(now)
}

// Before returns an instant before which an event with this stamp happened. The caller passes a
// reading of the real clock after the event as now. It is the only bound of the current stamp,
// because the next move may be late, and of the stamp before it while the clock moves.
func (c *Clock) Before(stamp Stamp, now Time) Time {
	last := c.Stamp()
	if stamp >= last || stamp == last-1 && c.moving.Load() {
		return max(now, c.at(last))
	}
	// Older moves are forgotten. At least one tick passes per move, so the oldest move is older
	// than the memory, and a connection that was heard before it is idle.
	return c.at(max(stamp+1, c.oldest(last)))
}

// After returns an instant after which an event with this stamp happened.
func (c *Clock) After(stamp Stamp) Time {
	return c.at(max(stamp, c.oldest(c.Stamp())))
}

// StampAt returns the stamp of an event at the given instant.
func (c *Clock) StampAt(at Time) Stamp {
	now := c.Stamp()
	oldest := c.oldest(now)
	moves := int(now-oldest) + 1
	later := sort.Search(moves, func(i int) bool { return c.at(oldest+Stamp(i)) > at })
	return oldest + Stamp(max(later-1, 0))
}

// ticks returns the number of whole ticks from the start of the clock to an instant.
func (c *Clock) ticks(at Time) int64 { return int64(at) / int64(c.tick) }

// Pack returns an instant in 32 bits: its number of ticks, rounded up, so that no deadline that is
// counted from it comes early. The result is never 0.
func (c *Clock) Pack(at Time) Packed {
	return max(Packed(c.ticks(at.Add(c.tick-1))), 1) // the count wraps to 0 every 2^32 ticks
}

// PackNow packs the real time. Unlike a stamp, the result outlives the memory of the clock.
func (c *Clock) PackNow() Packed { return c.Pack(c.elapsed()) }

// PackSome is Pack, except that it returns 0, no instant, for 0.
func (c *Clock) PackSome(at Time) Packed {
	if at == 0 {
		return 0
	}
	return c.Pack(at)
}

// Unpack returns the packed instant if it lies within 2^31 ticks of now. It returns 0 for 0.
func (c *Clock) Unpack(p Packed, now Time) Time {
	if p == 0 {
		return 0
	}
	n := c.ticks(now)
	return Time((n + int64(int32(p-Packed(n)))) * int64(c.tick))
}

// Clamp returns a packed instant. If the instant is more than 2^30 ticks old, which is longer than
// any limit, Clamp returns the one of 2^30 ticks ago, so that it stays in the range of Unpack.
func (c *Clock) Clamp(p Packed, now Time) Packed {
	if n := Packed(c.ticks(now)); p != 0 && int32(n-p) > 1<<30 {
		return max(n-1<<30, 1)
	}
	return p
}
