package wheel

import (
	"math"
	"math/bits"
)

// upperSlots is the number of slots of an upper level: they fit one word of the bitmap.
const upperSlots = 1 << 6

// maxTick is a tick that never comes.
const maxTick = math.MaxInt64

// A ring is a list for each of a number of slots, a power of two.
type ring struct {
	slots    []list
	occupied []uint64 // one bit per slot that holds ids
}

func newRing(slots int) ring {
	return ring{slots: make([]list, slots), occupied: make([]uint64, (slots+63)/64)}
}

// add puts an id into a slot.
func add[E any](r *ring, slot int64, b *blocks[E], id E) {
	if r.slots[slot].room == 0 {
		b.extend(&r.slots[slot])
		r.occupied[slot/64] |= 1 << (slot % 64)
	}
	b.put(&r.slots[slot], id)
}

// take empties a slot and returns its list.
func (r *ring) take(slot int64) (l list) {
	l, r.slots[slot] = r.slots[slot], list{}
	r.occupied[slot/64] &^= 1 << (slot % 64)
	return l
}

// next returns the first slot that holds ids, beginning at a given slot and wrapping around, and
// false if there is none.
func (r *ring) next(from int64) (slot int64, ok bool) {
	word := from / 64
	set := r.occupied[word] &^ (1<<(from%64) - 1)
	for range len(r.occupied) + 1 { // the first word twice: its end first, its beginning last
		if set != 0 {
			return word*64 + int64(bits.TrailingZeros64(set)), true
		}
		if word++; word == int64(len(r.occupied)) {
			word = 0
		}
		set = r.occupied[word]
	}
	return 0, false
}

// A level is one ring of the hierarchy. Its slots span 2^shift ticks each. A slot comes up at its
// first tick.
type level struct {
	index    int // 0 for the lowest
	shift    uint
	mask     int64 // number of slots - 1
	filed    ring
	draining list // the rest of the slot that came up last
}

func newLevel(index int, shift uint, slots int) *level {
	return &level{index: index, shift: shift, mask: int64(slots - 1), filed: newRing(slots)}
}

// above returns the level above l, in which each slot spans one turn of l.
func (l *level) above() *level {
	return newLevel(l.index+1, l.shift+uint(bits.Len64(uint64(l.mask))), upperSlots)
}

// slot returns the slot of a tick.
func (l *level) slot(tick int64) int64 { return tick >> l.shift & l.mask }

// covers reports whether a tick after the cursor lies within the turn that begins at the cursor.
// The slot of the cursor itself is not used, because it is being drained.
func (l *level) covers(tick, cursor int64) bool {
	return tick>>l.shift-cursor>>l.shift <= l.mask
}

// begins reports whether a slot comes up at a tick.
func (l *level) begins(tick int64) bool { return tick&(1<<l.shift-1) == 0 }

// next returns the tick after the cursor at which the next slot that holds ids comes up, maxTick if
// there is none.
func (l *level) next(cursor int64) int64 {
	first := cursor>>l.shift + 1
	slot, ok := l.filed.next(first & l.mask)
	if !ok {
		return maxTick
	}
	return (first + (slot-first)&l.mask) << l.shift
}
