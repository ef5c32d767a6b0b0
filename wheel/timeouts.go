package wheel

import "time"

// timeouts is the wheel of a shard. Its slots point to the Timeouts, and each Timeout knows its
// place, so that it can be removed when it is cancelled: its task may hold any amount of memory. A
// Wheel leaves cancelled entries in place, since they are small.
//
// As in a Wheel, a Reset to a later deadline leaves a Timeout in its slot.
type timeouts struct {
	hierarchy
	blocks blocks[*Timeout]
}

// A place is the position of a Timeout in a wheel. The zero place means that it is in no wheel.
type place struct {
	block uint32
	where uint32 // slot, level, and index in the block, from the top
}

const (
	slotBits  = 24 // maxSlots
	levelBits = 4  // a ring of one slot and ten of 64 reach the end of time
	indexBits = 4  // blockIDs
)

func newPlace(l *level, slot int64, block, index uint32) place {
	return place{block, uint32(slot)<<(levelBits+indexBits) | uint32(l.index)<<indexBits | index}
}

func (p place) index() uint32 { return p.where & (1<<indexBits - 1) }
func (p place) level() int    { return int(p.where >> indexBits & (1<<levelBits - 1)) }
func (p place) slot() int64   { return int64(p.where >> (indexBits + levelBits)) }

// file puts a Timeout that is in no wheel into the slot that comes up when it is due.
func (w *timeouts) file(t *Timeout, deadline time.Duration) {
	l, slot := w.locate(int64(deadline))
	add(&l.filed, slot, &w.blocks, t)
	to := l.filed.slots[slot]
	t.place = newPlace(l, slot, to.head, to.room)
}

// remove takes Timeouts out of their slots. It ignores Timeouts that are in no wheel.
func (w *timeouts) remove(some []*Timeout) {
	for _, t := range some {
		// Reads first, so that the cache misses of all Timeouts overlap.
		if p := t.place; p.block != 0 && w.blocks.at(p.block).ids[p.index()] != t {
			panic("BUG: wheel: a Timeout is not at its place")
		}
	}
	for _, t := range some {
		if t.place.block != 0 {
			w.removeFrom(t.place)
			t.place = place{}
		}
	}
}

// removeFrom takes out the Timeout at a place.
func (w *timeouts) removeFrom(p place) {
	l := w.levelAt(p.level())
	if p.slot() == l.slot(w.cursor) {
		w.fill(&l.draining, p)
		return
	}
	from := &l.filed.slots[p.slot()]
	w.fill(from, p)
	if from.empty() {
		l.filed.take(p.slot())
	}
}

// fill moves the Timeout on top of a list to a place in it that becomes free.
func (w *timeouts) fill(l *list, to place) {
	top := w.blocks.pop(l)
	if b := w.blocks.at(to.block); b.ids[to.index()] != nil { // otherwise the place was the top itself
		b.ids[to.index()] = top
		top.place = to
	}
}

// advance moves the wheel to now and calls take for up to limit Timeouts in slots that have come
// up, after removing them. It reports whether there are more.
func (w *timeouts) advance(now time.Duration, limit int, take func(*Timeout)) (more bool) {
	for target := w.target(now); ; {
		l := w.drained()
		switch {
		case l == nil && !w.turn(target):
			return false
		case l == nil:
			continue
		}
		for ; !l.empty(); limit-- {
			if limit == 0 {
				return true
			}
			t := w.blocks.pop(l)
			t.place = place{}
			take(t)
		}
	}
}
