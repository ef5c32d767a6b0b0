package wheel

import (
	"math"
	"math/bits"
	"time"
)

const (
	groupBits  = 6              // of a tick, per level
	levelSlots = 1 << groupBits // one per value of the group: the bitmap of a level is one word
	levels     = 11             // for 63 bits
)

// A slot is the index of a slot: 64 times its level plus the value of its group of bits. A slot
// with a higher index comes up later. The first slot of a level is never used: it would come up
// with a slot of the level above. So the zero slot means none.
type slot uint16

// expiring is a slot that never comes up. It holds an entry while its callback is running.
const expiring slot = levels * levelSlots

func (s slot) level() uint { return uint(s) / levelSlots }
func (s slot) group() uint { return uint(s) % levelSlots }
func (s slot) shift() uint { return s.level() * groupBits }

// A hierarchy has the slots of a wheel and the tick that the wheel has reached. It maps instants to
// slots and finds the slots that come up. It does not know the payloads of the entries.
type hierarchy struct {
	slab
	tick     int64                // nanoseconds
	cursor   int64                // the tick that the wheel has reached
	draining slot                 // the slot that came up at the cursor; no entry is added to it
	heads    [expiring + 1]uint32 // per slot, the id of its first entry, 0 if it is empty
	occupied [levels + 1]uint64   // per level, one bit per slot that holds entries
}

// slotOf returns the slot for a deadline. It comes up at the tick at which the deadline is due, or
// earlier if the deadline is far away. The level is the highest group of bits in which that tick
// differs from the cursor.
func (h *hierarchy) slotOf(deadline int64) slot {
	tick := h.tickOf(deadline)
	level := uint(bits.Len64(uint64(tick^h.cursor))-1) / groupBits
	return slot(level*levelSlots + uint(tick>>(level*groupBits))%levelSlots)
}

// tickOf returns the tick at which a deadline is due: rounded up, and after the cursor.
func (h *hierarchy) tickOf(deadline int64) int64 {
	tick := deadline / h.tick
	if tick*h.tick != deadline {
		tick++
	}
	return max(tick, h.cursor+1)
}

// first returns the tick at which an occupied slot comes up. The slot agrees with the cursor in all
// groups of bits above its own.
func (h *hierarchy) first(s slot) int64 {
	above := h.cursor >> s.shift() &^ (levelSlots - 1)
	return (above | int64(s.group())) << s.shift()
}

// next returns the slot that comes up next, 0 if all slots are empty. Occupied slots are ahead of
// the cursor in their level, and a level comes up before the levels above it. So the next slot is
// the first that is occupied.
func (h *hierarchy) next() slot {
	for level, occupied := range h.occupied[:levels] {
		if occupied != 0 {
			return slot(level*levelSlots + bits.TrailingZeros64(occupied))
		}
	}
	return 0
}

// turn moves the cursor to the tick at which the next slot comes up, for draining. If there is none
// until the target, it moves the cursor to the target and returns false.
func (h *hierarchy) turn(target int64) bool {
	h.draining = h.next()
	if h.draining == 0 || h.first(h.draining) > target {
		h.draining, h.cursor = 0, target
		return false
	}
	h.cursor = h.first(h.draining)
	return true
}

// target returns the tick to which Advance moves. It is below the last tick, so that there is
// always a tick after the cursor.
func (h *hierarchy) target(now time.Duration) int64 {
	return max(min(int64(now)/h.tick, math.MaxInt64-1), h.cursor)
}

// instant returns the beginning of a tick.
func (h *hierarchy) instant(tick int64) time.Duration {
	if tick > math.MaxInt64/h.tick {
		return math.MaxInt64
	}
	return time.Duration(tick * h.tick)
}

// add puts an entry at the beginning of the list of a slot.
func (h *hierarchy) add(id uint32, e *entry, s slot) {
	head := h.heads[s]
	e.slot = s
	*h.linkOf(id) = link{next: head}
	if head != 0 {
		h.linkOf(head).prev = id
	}
	h.heads[s] = id
	h.occupied[s.level()] |= 1 << s.group()
}

// remove takes an entry out of the list of its slot.
func (h *hierarchy) remove(id uint32, e *entry) {
	at := *h.linkOf(id)
	if at.next != 0 {
		h.linkOf(at.next).prev = at.prev
	}
	if at.prev != 0 {
		h.linkOf(at.prev).next = at.next
	} else if h.heads[e.slot] = at.next; at.next == 0 {
		h.occupied[e.slot.level()] &^= 1 << e.slot.group()
	}
}

// count returns the number of entries of a slot.
func (h *hierarchy) count(s slot) (n int) {
	for id := h.heads[s]; id != 0; id = h.linkOf(id).next {
		n++
	}
	return n
}

// move takes an entry out of its slot and adds it to another one.
func (h *hierarchy) move(id uint32, e *entry, s slot) {
	h.remove(id, e)
	h.add(id, e, s)
}
