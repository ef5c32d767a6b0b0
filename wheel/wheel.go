package wheel

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// maxSlots bounds the ring at 128 MiB, a number that can only be a mistake.
const maxSlots = 1 << 24

// A Wheel is a hashed timing wheel with payloads of type T. It keeps deadlines and hands over what is due; see the
// package comment for precision, cost and algorithm. Create one with [New].
//
// All instants are durations since an origin that the caller chooses and keeps; one before the origin counts as the
// origin. Not safe for concurrent use; the goroutine that calls Advance owns the Wheel.
type Wheel[T any] struct {
	tick int64 // nanoseconds
	mask int64 // number of slots - 1

	slots    []list
	occupied []uint64 // one bit per slot that holds ids
	draining list     // what is left of the slot that the cursor stands on
	cursor   int64    // the tick whose slot was taken last

	entries   slabs[T]
	blocks    blocks
	free      list // ids in no slot
	cancelled list // ids that were cancelled; in a slot unless their deadline says unfiled
	pending   int

	warmed    uint32 // keeps the reads of warm alive
	advancing bool
	firing    Handle // the entry whose callback is running or has panicked
}

// New returns an empty Wheel that stands at its origin. The tick is its smallest step and must be positive. The number
// of slots must be a power of two up to 2^24; with at least as many as the longest usual timeout has ticks, each entry
// is looked at once.
func New[T any](tick time.Duration, slots int) (*Wheel[T], error) {
	var errs []error
	if tick <= 0 {
		errs = append(errs, fmt.Errorf("wheel: tick is %v, must be positive", tick))
	}
	if slots <= 0 || slots > maxSlots || slots&(slots-1) != 0 {
		errs = append(errs, fmt.Errorf("wheel: %d slots, must be a power of two from 1 to %d", slots, maxSlots))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Wheel[T]{
		tick:     int64(tick),
		mask:     int64(slots - 1),
		slots:    make([]list, slots),
		occupied: make([]uint64, (slots+63)/64),
	}, nil
}

// Len returns the number of pending entries. One whose callback is running counts until the callback returns.
func (w *Wheel[T]) Len() int { return w.pending }

// Schedule adds an entry that is due at deadline and returns its Handle. A deadline that has passed is due at the next
// tick at the latest.
func (w *Wheel[T]) Schedule(deadline time.Duration, payload T) Handle {
	at := max(int64(deadline), 0)
	id, filed := w.place(at)
	e := w.entries.at(id)
	e.deadline, e.payload = at, payload
	e.generation++
	if !filed {
		w.file(id, at)
	}
	w.pending++
	return newHandle(id, e.generation)
}

// Reschedule moves a pending entry to deadline: cancel and re-add, in place where that is the same. It returns the
// Handle to use from now on, which is h itself unless the deadline moved to an earlier instant, and 0 if h is stale.
//
// A later deadline is one store. An expiry callback may reschedule its own entry and keeps the Handle.
func (w *Wheel[T]) Reschedule(h Handle, deadline time.Duration) Handle {
	e := w.entries.find(h)
	if e == nil {
		return 0
	}
	at := max(int64(deadline), 0)
	switch {
	case at >= e.deadline && e.deadline != unfiled:
		e.deadline = at
		return h
	case e.deadline == unfiled: // its callback is running
		e.deadline = at
		w.file(h.id(), at)
		return h
	default:
		payload := e.payload
		w.Cancel(h)
		return w.Schedule(deadline, payload)
	}
}

// Cancel takes a pending entry out and reports whether there was one: false means that it has fired, that it was
// cancelled before, or that h is the zero Handle. An expiry callback may cancel its own entry, which has no effect but
// to make its Handle stale, and any other, including one that is due in the same slot, which then does not fire.
func (w *Wheel[T]) Cancel(h Handle) bool {
	e := w.entries.find(h)
	if e == nil {
		return false
	}
	w.retire(h.id(), e)
	return true
}

// Deadline returns the instant at which a pending entry is due, and false if h is stale. While the callback of the entry
// runs and has not rescheduled it, there is none.
func (w *Wheel[T]) Deadline(h Handle) (time.Duration, bool) {
	e := w.entries.find(h)
	if e == nil || e.deadline == unfiled {
		return 0, false
	}
	return time.Duration(e.deadline), true
}

// NextDue returns the earliest instant at which Advance may find something to do, and false if there is none. It is
// never later than the earliest deadline rounded up to its tick; it may be earlier where entries were rescheduled,
// cancelled, or lie more than one turn away. A driver may sleep until then.
func (w *Wheel[T]) NextDue() (time.Duration, bool) {
	if !w.draining.empty() {
		return time.Duration(w.cursor * w.tick), true
	}
	d := w.distance()
	if d == 0 {
		return 0, false
	}
	if w.cursor+d > math.MaxInt64/w.tick {
		return math.MaxInt64, true
	}
	return time.Duration((w.cursor + d) * w.tick), true
}

// Advance moves the wheel to now and calls expire for each entry that is due. It takes at most budget entries out of
// their slots, those that turn out to be cancelled or not yet due included, so that its run time is bounded; with a
// budget of 0 or less it takes none. It returns how many it has expired, and whether it has left work for another call
// with the same now, which continues where this one stopped, be it in the middle of a slot. A now before that of an
// earlier call does nothing new.
//
// Entries of one slot expire in no particular order, those of an earlier slot before those of a later one.
//
// The callback runs on the caller's goroutine. It may schedule, cancel and reschedule any entry, its own included; what
// it schedules for an instant that has passed is due at the next tick at the latest. It must not call Advance, which panics. If it
// panics itself, its own entry is gone and the wheel is good for further use.
func (w *Wheel[T]) Advance(now time.Duration, budget int, expire func(h Handle, payload T)) (expired int, more bool) {
	if w.advancing {
		panic("wheel: Advance called from an expiry callback")
	}
	w.advancing = true
	defer w.settle()

	target := max(int64(now)/w.tick, w.cursor)
	// Each slot is looked at once at most: what lies further back than one turn is due, wherever it is filed.
	w.cursor = max(w.cursor, target-int64(len(w.slots)))
	for {
		if w.draining.empty() && !w.nextSlot(target) {
			return expired, false
		}
		if budget <= 0 {
			return expired, true
		}
		budget--
		if w.takeOne(target*w.tick, expire) {
			expired++
		}
	}
}

// takeOne takes one id from the slot being drained and reports whether it has expired.
func (w *Wheel[T]) takeOne(now int64, expire func(Handle, T)) bool {
	id := w.blocks.pop(&w.draining)
	if w.draining.n == blockIDs {
		w.warm()
	}
	e := w.entries.at(id)
	if !e.pending() {
		e.deadline = unfiled
		return false
	}
	if e.deadline > now {
		w.file(id, e.deadline)
		return false
	}
	e.deadline = unfiled
	generation := e.generation
	w.firing = newHandle(id, generation)
	expire(w.firing, e.payload)
	w.firing = 0
	if e.generation == generation && e.deadline == unfiled { // neither cancelled nor rescheduled meanwhile
		w.retire(id, e)
	}
	return true
}

// settle ends an Advance, also one whose callback panicked.
func (w *Wheel[T]) settle() {
	if e := w.entries.find(w.firing); e != nil && e.deadline == unfiled {
		w.retire(w.firing.id(), e)
	}
	w.firing = 0
	w.advancing = false
}

// Purge makes the places of cancelled entries reusable for any deadline at once, without waiting for their slots to come
// up, and returns how many there were. It looks at every entry: about 20 ns for each.
func (w *Wheel[T]) Purge() int {
	purged := w.purgeList(&w.draining)
	for i := range w.slots {
		if w.slots[i].empty() {
			continue
		}
		purged += w.purgeList(&w.slots[i])
		if w.slots[i].empty() {
			w.occupied[i/64] &^= 1 << (i % 64)
		}
	}
	return purged
}

func (w *Wheel[T]) purgeList(l *list) (purged int) {
	var kept list
	for !l.empty() {
		id := w.blocks.pop(l)
		if e := w.entries.at(id); e.pending() {
			w.blocks.push(&kept, id)
		} else {
			e.deadline = unfiled
			purged++
		}
	}
	*l = kept
	return purged
}

// place finds an id for an entry that is due at the given instant, and reports whether it is in a slot already that
// comes up no later.
func (w *Wheel[T]) place(at int64) (id uint32, filed bool) {
	if !w.cancelled.empty() {
		if d := w.entries.at(w.blocks.top(&w.cancelled)).deadline; d <= at {
			return w.blocks.pop(&w.cancelled), d != unfiled
		}
	}
	if !w.free.empty() {
		return w.blocks.pop(&w.free), false
	}
	return w.entries.grow(), false
}

// retire ends the life of a pending entry and keeps its place for another.
func (w *Wheel[T]) retire(id uint32, e *entry[T]) {
	var zero T
	e.payload = zero // let go of what it points to
	e.generation++
	w.pending--
	if e.deadline == unfiled {
		w.blocks.push(&w.free, id)
	} else {
		w.blocks.push(&w.cancelled, id)
	}
}

// file puts an id into the slot that comes up when the given instant is due: its tick, rounded up.
func (w *Wheel[T]) file(id uint32, at int64) {
	tick := at / w.tick
	if tick*w.tick != at {
		tick++
	}
	slot := max(tick, w.cursor+1) & w.mask
	w.blocks.push(&w.slots[slot], id)
	w.occupied[slot/64] |= 1 << (slot % 64)
}

// nextSlot moves the cursor to the next slot up to the target that holds ids and takes them out for draining. Without
// one it moves the cursor to the target and returns false.
func (w *Wheel[T]) nextSlot(target int64) bool {
	d := w.distance()
	if d == 0 || w.cursor+d > target {
		w.cursor = target
		return false
	}
	w.cursor += d
	slot := w.cursor & w.mask
	w.draining, w.slots[slot] = w.slots[slot], list{}
	w.occupied[slot/64] &^= 1 << (slot % 64)
	w.warm()
	return true
}

// warm reads the entries of the block that is drained next, all at once: the processor fetches them side by side, where
// one at a time each would be a cache miss to wait for.
func (w *Wheel[T]) warm() {
	var sum uint32
	for _, id := range w.blocks.at(w.draining.head).ids[:w.draining.n] {
		sum += w.entries.at(id).generation
	}
	w.warmed = sum
}

// distance returns how many ticks after the cursor the next slot that holds ids comes up, and 0 if all are empty.
func (w *Wheel[T]) distance() int64 {
	start := (w.cursor + 1) & w.mask
	word := start / 64
	set := w.occupied[word] &^ (1<<(start%64) - 1)
	for range len(w.occupied) + 1 { // the first word twice: from start on, and up to start
		if set != 0 {
			slot := word*64 + int64(bits.TrailingZeros64(set))
			return (slot-start)&w.mask + 1
		}
		word++
		if word == int64(len(w.occupied)) {
			word = 0
		}
		set = w.occupied[word]
	}
	return 0
}
