package wheel

// Cancel leaves the id in its slot at an unknown position. Three things free its place: a Schedule
// with a later deadline reuses a recently cancelled entry together with its slot; the slot comes
// up; or, if there are more cancelled than pending entries, each Schedule that needs a new place
// scans a few ids first.

const (
	// deadSlack is the excess of cancelled over pending entries above which slots are scanned.
	deadSlack = 1 << 10
	// sweepBlocks is the number of blocks that a Schedule scans. At least half of the ids in the
	// slots are cancelled then, so the scan finds many more places than the one needed.
	sweepBlocks = 4
)

// recent is a stack of the ids that were cancelled last. It drops the oldest, and may hold ids that
// were reused since.
type recent struct {
	ids [64]uint32
	top uint32 // one more than the index of the top, not wrapped
	n   uint32
}

func (r *recent) push(id uint32) {
	r.ids[r.top%uint32(len(r.ids))] = id
	r.top++
	r.n = min(r.n+1, uint32(len(r.ids)))
}

func (r *recent) peek() uint32 { return r.ids[(r.top-1)%uint32(len(r.ids))] }

func (r *recent) pop() {
	r.top--
	r.n--
}

// place returns an id for an entry that is due at the given instant. It reports whether the id is
// already in a slot that comes up no later.
func (w *Wheel[T]) place(at int64) (id uint32, filed bool) {
	for w.recent.n > 0 {
		id := w.recent.peek()
		e := w.entries.at(id)
		if !e.pending() && e.deadline() != unfiled {
			if e.deadline() > at {
				break
			}
			w.recent.pop()
			w.dead--
			return id, true
		}
		w.recent.pop()
	}
	if w.free.empty() && w.dead > w.pending+deadSlack {
		w.sweep(sweepBlocks)
	}
	if !w.free.empty() {
		return w.blocks.pop(&w.free), false
	}
	return w.entries.grow(), false
}

// retire cancels a pending entry.
func (w *Wheel[T]) retire(id uint32, e entry[T]) {
	if newHandle(id, e.generation()) == w.firing {
		e.setDeadline(unfiled) // the callback may have rescheduled it
	}
	w.release(e)
	if e.deadline() == unfiled {
		w.blocks.push(&w.free, id)
	} else {
		w.dead++
		w.recent.push(id)
	}
}

// bury makes the place of a cancelled entry reusable after its id was taken out of its slot.
func (w *Wheel[T]) bury(id uint32) {
	w.entries.at(id).setDeadline(unfiled)
	w.blocks.push(&w.free, id)
	w.dead--
}

// Purge makes the places of all cancelled entries reusable at once, except in a slot that Advance
// is emptying, and returns their number. It scans every entry and takes about 20 ns for each. It is
// rarely needed: without it, cancelled entries exceed the pending ones by little more than 1024.
func (w *Wheel[T]) Purge() (purged int) {
	dead := w.dead
	w.sweeper = sweeper{}
	for w.sweep(1) {
	}
	return dead - w.dead
}

// A sweeper is the position of the scan for cancelled entries. The zero sweeper begins with the
// first slot.
type sweeper struct {
	level int
	slot  int64
	block uint32 // 0 for the head of the slot
}

// sweep takes the cancelled entries out of the next blocks that hold ids, and reports whether there
// are more. After it has returned false, the next call begins again with the first slot.
func (w *Wheel[T]) sweep(blocks int) bool {
	s := &w.sweeper
	for range blocks {
		if s.block == 0 && !w.nextToSweep() {
			w.sweeper = sweeper{}
			return false
		}
		l := w.levelAt(s.level)
		s.block = w.sweepBlock(&l.filed.slots[s.slot], s.block)
		if l.filed.slots[s.slot].empty() {
			l.filed.take(s.slot)
		}
		if s.block == 0 {
			s.slot++
		}
	}
	return true
}

// nextToSweep moves the sweeper to the head block of the next slot that holds ids.
func (w *Wheel[T]) nextToSweep() bool {
	s := &w.sweeper
	for ; s.level <= len(w.upper); s.level, s.slot = s.level+1, 0 {
		l := w.levelAt(s.level)
		if s.slot > l.mask {
			continue
		}
		if slot, ok := l.filed.next(s.slot); ok && slot >= s.slot {
			s.slot, s.block = slot, l.filed.slots[slot].head
			return true
		}
	}
	return false
}

// sweepBlock takes the cancelled entries out of one block of a list and closes the gaps with ids
// from the top of the list. It returns the next block, 0 if this was the last one.
func (w *Wheel[T]) sweepBlock(ids *list, at uint32) (next uint32) {
	b := w.blocks.at(at)
	next = b.next
	first := uint32(0)
	if at == ids.head {
		first = ids.room
	}
	for i := first; i < blockIDs; {
		id := b.ids[i]
		if w.entries.at(id).pending() {
			i++
			continue
		}
		head, top := ids.head, ids.room
		b.ids[i] = w.blocks.pop(ids)
		w.bury(id)
		if head == at && top == i { // the place was the top itself
			i++
		}
		if head == at && ids.head != at { // the block is empty
			break
		}
	}
	return next
}
