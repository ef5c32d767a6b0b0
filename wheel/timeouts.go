package wheel

import "time"

// timeouts is the wheel of a shard. Its slots hold the Timeouts themselves, and each of these knows its place, so that it
// is taken out when it is cancelled: a Timeout holds a task, and a task may hold anything. The Wheel leaves cancelled
// entries where they are, since they are small, and all in one piece of memory.
//
// Reset to later leaves a Timeout where it is, as the Wheel does.
type timeouts struct {
	hierarchy
	blocks blocks[*Timeout]
}

// A place is where in a wheel a Timeout is. The zero place is nowhere.
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

// file puts a Timeout that is nowhere into the slot that comes up when it is due.
func (w *timeouts) file(t *Timeout, deadline time.Duration) {
	l, slot := w.locate(int64(deadline))
	add(&l.filed, slot, &w.blocks, t)
	to := l.filed.slots[slot]
	t.place = newPlace(l, slot, to.head, to.room)
}

// remove takes Timeouts out of their slots; those that are nowhere stay so.
func (w *timeouts) remove(some []*Timeout) {
	for _, t := range some {
		// A read that nothing waits for, so that the memory answers as fast for all as for one.
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

// fill moves the Timeout on top of a list to a place in it that is given up.
func (w *timeouts) fill(l *list, to place) {
	top := w.blocks.pop(l)
	if b := w.blocks.at(to.block); b.ids[to.index()] != nil { // else it was itself the top
		b.ids[to.index()] = top
		top.place = to
	}
}

// advance moves the wheel to now and calls take for each Timeout whose slot has come up; what it takes is nowhere. At most
// limit are taken; it returns whether there are more.
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
