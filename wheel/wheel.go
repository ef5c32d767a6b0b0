package wheel

import (
	"iter"
	"time"
	"unsafe"
)

// A Wheel is a hierarchical timing wheel with payloads of type T. It expires entries at their
// deadlines; see the package comment for precision, cost and algorithm. Create one with [New].
//
// All instants are durations since an origin that the caller chooses and keeps; one before the
// origin counts as the origin. Not safe for concurrent use; the goroutine that calls Advance owns
// the Wheel.
type Wheel[T any] struct {
	hierarchy

	entries slabs[T]
	blocks  blocks[uint32]
	free    list // ids in no slot
	pending int
	dead    int    // cancelled entries with ids that are still in a slot
	recent  recent // some of these
	sweeper sweeper

	advancing bool
	firing    Handle // the entry with the callback that is running or has panicked
}

// New returns an empty Wheel that stands at its origin. The tick is its smallest step and must be
// positive. The number of slots must be a power of two up to 2^24. If the slots cover the longest
// usual timeout, an entry is filed once, otherwise once more for each level that it moves down.
func New[T any](tick time.Duration, slots int) (*Wheel[T], error) {
	h, err := newHierarchy(tick, slots)
	if err != nil {
		return nil, err
	}
	return &Wheel[T]{hierarchy: h}, nil
}

// Len returns the number of pending entries. An entry counts until its callback returns.
func (w *Wheel[T]) Len() int { return w.pending }

// Schedule adds an entry that is due at deadline and returns its Handle. If the deadline has
// passed, the entry is due at the next tick at the latest.
func (w *Wheel[T]) Schedule(deadline time.Duration, payload T) Handle {
	at := max(int64(deadline), 0)
	id, filed := w.place(at)
	e := w.entries.at(id)
	e.setDeadline(at)
	e.nextGeneration()
	*e.payload() = payload
	if !filed {
		w.file(id, at)
	}
	w.pending++
	return newHandle(id, e.generation())
}

// Reschedule moves a pending entry to deadline. It returns the Handle to use from now on, which is
// h unless the deadline moved to an earlier instant. It returns 0 if h is stale.
//
// Moving to a later deadline is one store. An expiry callback may reschedule its own entry, which
// keeps its Handle.
func (w *Wheel[T]) Reschedule(h Handle, deadline time.Duration) Handle {
	if e, ok := w.entries.find(h); ok && int64(deadline) > e.deadline() {
		e.setDeadline(int64(deadline))
		return h
	}
	return w.rescheduleEarlier(h, deadline)
}

func (w *Wheel[T]) rescheduleEarlier(h Handle, deadline time.Duration) Handle {
	e, ok := w.entries.find(h)
	if !ok {
		return 0
	}
	if at := max(int64(deadline), 0); h == w.firing || at == e.deadline() {
		e.setDeadline(at)
		return h
	}
	payload := *e.payload()
	w.Cancel(h)
	return w.Schedule(deadline, payload)
}

// Cancel removes a pending entry. It reports false if the entry has expired or was cancelled
// before, or if h is the zero Handle. An expiry callback may cancel any other entry, also one that
// is due in the same slot, which then does not expire. If it cancels its own entry, that only makes
// the Handle stale.
func (w *Wheel[T]) Cancel(h Handle) bool {
	e, ok := w.entries.find(h)
	if !ok {
		return false
	}
	w.retire(h.id(), e)
	return true
}

// Deadline returns the deadline of a pending entry, and false if h is stale. During its callback an
// entry has no deadline until the callback reschedules it.
func (w *Wheel[T]) Deadline(h Handle) (time.Duration, bool) {
	e, ok := w.entries.find(h)
	if !ok || e.deadline() == unfiled {
		return 0, false
	}
	return time.Duration(max(e.deadline(), 0)), true
}

// NextDue returns the earliest instant at which Advance may find something to do, and false if
// there is none. It is never later than the earliest deadline rounded up to its tick. It may be
// earlier if entries were rescheduled or cancelled, or have to move down a level. A driver may
// sleep until then.
func (w *Wheel[T]) NextDue() (time.Duration, bool) {
	return w.nextDue()
}

// A Slot describes one slot of a Wheel, see [Wheel.Slots].
type Slot struct {
	Due     time.Duration // the instant at which it comes up
	Span    time.Duration // one tick, or the turn of a lower level
	Entries int
}

// Slots returns the slots that hold entries, per level in the order in which they come up. It takes
// half a nanosecond per entry, and a few nanoseconds if there are cancelled entries with places
// that were not reused. The Wheel must not be changed meanwhile.
func (w *Wheel[T]) Slots() iter.Seq[Slot] {
	if w.dead == 0 {
		return w.slots(w.blocks.count)
	}
	return w.slots(w.countPending)
}

// countPending returns the number of entries of a list that were not cancelled.
func (w *Wheel[T]) countPending(l list) (n int) {
	for i, first := l.head, l.room; i != 0; i, first = w.blocks.at(i).next, 0 {
		for _, id := range w.blocks.at(i).ids[first:] {
			if w.entries.at(id).pending() {
				n++
			}
		}
	}
	return n
}

// Advance moves the wheel to now and calls expire for each entry that is due. It takes at most
// budget entries out of their slots, including cancelled entries and entries that are not due yet,
// so that its run time is bounded. With a budget of 0 or less it takes none. It returns the number
// of expired entries, and whether work is left. In that case another call with the same now
// continues, possibly in the middle of a slot. A call with an earlier now than before does nothing
// new.
//
// Entries expire in the order of their ticks, also if Advance is late. Entries of one tick expire
// in no particular order.
//
// The callback runs on the caller's goroutine. It may schedule, cancel and reschedule any entry,
// including its own. If it schedules an entry for an instant that has passed, the entry is due at
// the next tick at the latest. It must not call Advance, which panics. If the callback panics, its
// own entry is removed, and the wheel can be used further.
func (w *Wheel[T]) Advance(now time.Duration, budget int, expire func(h Handle, payload T)) (expired int, more bool) {
	if w.advancing {
		panic("wheel: Advance called from an expiry callback")
	}
	w.advancing = true
	defer w.settle()

	for target := w.target(now); ; {
		l := w.drained()
		switch {
		case l == nil && !w.leave(target):
			return expired, false
		case l == nil:
			continue
		case budget <= 0:
			return expired, true
		}
		taken, fired := w.drain(l, budget, expire)
		budget -= taken
		expired += fired
	}
}

// drain takes up to limit ids out of the head block of a slot that has come up. It returns the
// number of ids taken and the number of expired entries.
func (w *Wheel[T]) drain(l *list, limit int, expire func(Handle, T)) (taken, expired int) {
	b := w.blocks.at(l.head)
	w.prefetchAfter(b)
	ids := b.ids[l.room:]
	if len(ids) > limit {
		ids = ids[:limit]
	}
	for _, id := range ids {
		if l.room++; l.room == blockIDs {
			w.blocks.shrink(l)
		}
		e := w.entries.at(id)
		deadline := e.deadline()
		if deadline > w.now && e.pending() {
			w.file(id, deadline)
			continue
		}
		e.setDeadline(unfiled)
		if !e.pending() {
			w.bury(id)
			continue
		}
		w.firing = newHandle(id, e.generation())
		expire(w.firing, *e.payload())
		w.finish(e)
		expired++
	}
	return len(ids), expired
}

// finish removes an entry after its callback, unless the callback has rescheduled it.
func (w *Wheel[T]) finish(e entry[T]) {
	h := w.firing
	w.firing = 0
	if e.generation() != h.generation() { // cancelled
		return
	}
	if at := e.deadline(); at != unfiled {
		e.setDeadline(max(at, 0))
		w.file(h.id(), max(at, 0))
		return
	}
	w.release(e)
	w.blocks.push(&w.free, h.id())
}

// settle ends an Advance, also if a callback has panicked.
func (w *Wheel[T]) settle() {
	if w.firing != 0 {
		w.finish(w.entries.at(w.firing.id()))
	}
	w.advancing = false
}

// release makes all Handles of an entry stale and lets go of what its payload points to.
func (w *Wheel[T]) release(e entry[T]) {
	var zero T
	*e.payload() = zero
	e.nextGeneration()
	w.pending--
}

// file puts an id into the slot that comes up when the given instant is due.
func (w *Wheel[T]) file(id uint32, at int64) {
	l, slot := w.locate(at)
	add(&l.filed, slot, &w.blocks, id)
}

// leave moves the cursor as turn does, and tells the sweeper if its slot is being emptied.
func (w *Wheel[T]) leave(target int64) bool {
	if !w.turn(target) {
		return false
	}
	if l := w.levelAt(w.sweeper.level); l.begins(w.cursor) && l.slot(w.cursor) == w.sweeper.slot {
		w.sweeper.block = 0
	}
	return true
}

// prefetchAfter loads memory that the next calls of drain will read into the cache: the entries of
// the next block, and the block after the next one. An earlier call has loaded the ids of the next
// block.
func (w *Wheel[T]) prefetchAfter(b *block[uint32]) {
	next := w.blocks.at(b.next)
	ahead := w.blocks.at(w.blocks.at(next.next).next)
	prefetch(&next.ids, ahead, unsafe.Pointer(&w.entries.pieces[0]), unsafe.Sizeof(pair[T]{}))
}
