package wheel

import (
	"fmt"
	"iter"
	"math/bits"
	"time"
)

// A Wheel is a hierarchical timing wheel with payloads of type T. It expires entries at their
// deadlines; see the package comment for precision, cost and algorithm. Create one with [New].
//
// All instants are durations since an origin that the caller chooses and keeps; one before the
// origin counts as the origin. Not safe for concurrent use; the goroutine that calls Advance owns
// the Wheel.
type Wheel[T any] struct {
	hierarchy
	payloads  []*[pieceEntries]T // by id, the zero value unless pending
	pending   int
	advancing bool
}

// New returns an empty Wheel that stands at its origin. The tick is its smallest step and must be
// positive.
func New[T any](tick time.Duration) (*Wheel[T], error) {
	if tick <= 0 {
		return nil, fmt.Errorf("wheel: tick is %v, must be positive", tick)
	}
	return &Wheel[T]{hierarchy: hierarchy{tick: int64(tick)}}, nil
}

// Len returns the number of pending entries. An entry counts until its callback returns.
func (w *Wheel[T]) Len() int { return w.pending }

// Schedule adds an entry that is due at deadline and returns its Handle. If the deadline has
// passed, the entry is due at the next tick at the latest. In the last tick of the range, 292 years
// after the origin, it never expires. Schedule panics at 2^32 entries.
func (w *Wheel[T]) Schedule(deadline time.Duration, payload T) Handle {
	id, e := w.take()
	if len(w.payloads) < len(w.pieces) {
		w.payloads = append(w.payloads, new([pieceEntries]T))
	}
	*w.payload(id) = payload
	e.deadline = max(int64(deadline), 0)
	w.add(id, e, w.slotOf(e.deadline))
	w.pending++
	return newHandle(id, e.generation)
}

// Reschedule moves a pending entry to deadline, and reports false if h is stale. An expiry callback
// may reschedule its own entry.
//
// If the slot of the entry comes up before the new deadline, Reschedule only stores the deadline,
// and the entry moves when its slot comes up.
func (w *Wheel[T]) Reschedule(h Handle, deadline time.Duration) bool {
	e := w.find(h)
	if e == nil {
		return false
	}
	e.deadline = max(int64(deadline), 0)
	if s := w.slotOf(e.deadline); s < e.slot {
		w.move(h.id(), e, s)
	}
	return true
}

// Cancel removes a pending entry, and reports false if h is stale. An expiry callback may cancel
// any other entry, also one that is due in the same slot, which then does not expire. If it cancels
// its own entry, that only makes the Handle stale.
func (w *Wheel[T]) Cancel(h Handle) bool {
	e := w.find(h)
	if e == nil {
		return false
	}
	w.release(h.id(), e)
	return true
}

// Deadline returns the deadline of a pending entry, and false if h is stale. During its callback an
// entry has no deadline until the callback reschedules it.
func (w *Wheel[T]) Deadline(h Handle) (time.Duration, bool) {
	e := w.find(h)
	if e == nil || e.slot == expiring {
		return 0, false
	}
	return time.Duration(e.deadline), true
}

// NextDue returns the earliest instant at which Advance may find something to do, and false if
// there is none. It is never later than the earliest deadline rounded up to its tick, or, if that
// has passed, than the next tick. It is earlier if an entry was rescheduled to a later deadline or
// has to move down a level. A driver may sleep until then.
func (w *Wheel[T]) NextDue() (due time.Duration, ok bool) {
	s := w.next()
	if w.heads[w.draining] != 0 {
		s = w.draining
	}
	if s == 0 {
		return 0, false
	}
	return w.instant(w.first(s)), true
}

// A Slot describes one slot of a Wheel, see [Wheel.Slots].
type Slot struct {
	Due     time.Duration // the instant at which it comes up
	Span    time.Duration // a tick, or 64 times the span of the level below
	Entries int
}

// Slots returns the slots that hold entries, in the order in which they come up, except for one
// that Advance has begun to empty. It visits each entry. The Wheel must not be changed meanwhile.
func (w *Wheel[T]) Slots() iter.Seq[Slot] {
	return func(yield func(Slot) bool) {
		for level, occupied := range w.occupied[:levels] {
			for ; occupied != 0; occupied &= occupied - 1 {
				s := slot(level*levelSlots + bits.TrailingZeros64(occupied))
				if !yield(Slot{w.instant(w.first(s)), w.instant(1 << s.shift()), w.count(s)}) {
					return
				}
			}
		}
	}
}

// Deadlines returns the deadlines of all pending entries, in no particular order. It takes a few
// nanoseconds per entry. The Wheel must not be changed meanwhile.
func (w *Wheel[T]) Deadlines() iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for _, piece := range w.pieces {
			for i := range piece.entries {
				if e := &piece.entries[i]; e.pending() && !yield(time.Duration(e.deadline)) {
					return
				}
			}
		}
	}
}

// Advance moves the wheel to now and calls expire for each entry that is due. It takes at most
// budget entries out of their slots, including entries that are not due yet, so that its run time
// is bounded. With a budget of 0 or less it takes none. It returns the number of expired entries,
// and whether work is left. In that case another call with the same now continues, possibly in the
// middle of a slot. A call with an earlier now than before does nothing new.
//
// Entries expire in the order of their ticks, also if Advance is late. Entries of one tick expire
// in no particular order.
//
// The callback runs on the caller's goroutine. It may schedule, cancel and reschedule any entry,
// including its own. If it schedules an entry for an instant that has passed, the entry is due at
// the next tick at the latest. It must not call Advance, which panics. If the callback panics, its
// own entry is removed unless the callback has rescheduled it, and the wheel can be used further.
func (w *Wheel[T]) Advance(now time.Duration, budget int, expire func(h Handle, payload T)) (expired int, more bool) {
	if w.advancing {
		panic("wheel: Advance called from an expiry callback")
	}
	w.advancing = true
	defer w.settle()

	for target := w.target(now); ; budget-- {
		for w.heads[w.draining] == 0 {
			if !w.turn(target) {
				return expired, false
			}
		}
		if budget <= 0 {
			return expired, true
		}
		if w.drain(w.heads[w.draining], expire) {
			expired++
		}
	}
}

// drain takes an entry out of the slot that has come up. It reports whether the entry has expired;
// otherwise the entry is in a later slot.
func (w *Wheel[T]) drain(id uint32, expire func(Handle, T)) bool {
	e := w.at(id)
	if e.deadline > w.cursor*w.tick {
		w.move(id, e, w.slotOf(e.deadline))
		return false
	}
	w.move(id, e, expiring)
	expire(newHandle(id, e.generation), *w.payload(id))
	w.finish()
	return true
}

// finish removes an entry after its callback, unless the callback has cancelled or rescheduled it.
func (w *Wheel[T]) finish() {
	if id := w.heads[expiring]; id != 0 {
		w.release(id, w.at(id))
	}
}

// settle ends an Advance, also if a callback has panicked.
func (w *Wheel[T]) settle() {
	w.finish()
	w.advancing = false
}

// release ends the life of a pending entry, and drops what its payload points to.
func (w *Wheel[T]) release(id uint32, e *entry) {
	var zero T
	*w.payload(id) = zero
	w.remove(id, e)
	w.put(id)
	w.pending--
}

func (w *Wheel[T]) payload(id uint32) *T { return &w.payloads[id/pieceEntries][id%pieceEntries] }
