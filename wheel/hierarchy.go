package wheel

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"time"
)

// maxSlots bounds the ring at 128 MiB. A larger number is a mistake.
const maxSlots = 1 << 24

// A hierarchy has the rings of a timing wheel and the tick that they have reached. It maps instants
// to slots and finds the slots that come up. It does not know the type of the entries.
type hierarchy struct {
	tick       int64  // nanoseconds
	reciprocal uint64 // 2^64 / tick, rounded down

	ring   level    // the lowest: one slot per tick
	upper  []*level // one slot per turn of the level below; allocated when a deadline needs it
	cursor int64    // the tick that the wheel has reached
	now    int64    // the same in nanoseconds
}

func newHierarchy(tick time.Duration, slots int) (hierarchy, error) {
	var errs []error
	if tick <= 0 {
		errs = append(errs, fmt.Errorf("wheel: tick is %v, must be positive", tick))
	}
	if slots <= 0 || slots > maxSlots || slots&(slots-1) != 0 {
		errs = append(errs, fmt.Errorf("wheel: %d slots, must be a power of two from 1 to %d", slots, maxSlots))
	}
	if err := errors.Join(errs...); err != nil {
		return hierarchy{}, err
	}
	return hierarchy{
		tick:       int64(tick),
		reciprocal: math.MaxUint64 / uint64(tick),
		ring:       *newLevel(0, 0, slots),
	}, nil
}

// locate returns the slot for an instant. It comes up at the tick of the instant, or earlier if the
// instant is far away.
func (h *hierarchy) locate(at int64) (l *level, slot int64) {
	tick := h.tickOf(at)
	l = &h.ring
	if !l.covers(tick, h.cursor) {
		l = h.level(tick)
	}
	return l, l.slot(tick)
}

// tickOf returns the tick at which an instant is due: rounded up, and after the cursor. It
// multiplies by the reciprocal instead of dividing. The product is less than two below the
// quotient, and the loop adds the difference.
func (h *hierarchy) tickOf(at int64) int64 {
	hi, _ := bits.Mul64(uint64(at), h.reciprocal)
	tick := int64(hi)
	for rest := at - tick*h.tick; rest > 0; rest -= h.tick {
		tick++
	}
	return max(tick, h.cursor+1)
}

// level returns the lowest level that covers a tick.
func (h *hierarchy) level(tick int64) *level {
	l := &h.ring
	for i := 0; !l.covers(tick, h.cursor); i++ {
		if i == len(h.upper) {
			h.upper = append(h.upper, l.above())
		}
		l = h.upper[i]
	}
	return l
}

// levelAt returns a level by its index.
func (h *hierarchy) levelAt(i int) *level {
	if i == 0 {
		return &h.ring
	}
	return h.upper[i-1]
}

// levels returns all levels, the lowest first.
func (h *hierarchy) levels() iter.Seq[*level] {
	return func(yield func(*level) bool) {
		if !yield(&h.ring) {
			return
		}
		for _, l := range h.upper {
			if !yield(l) {
				return
			}
		}
	}
}

// drained returns the list that is being drained, nil if there is none.
func (h *hierarchy) drained() *list {
	if !h.ring.draining.empty() {
		return &h.ring.draining
	}
	for _, l := range h.upper {
		if !l.draining.empty() {
			return &l.draining
		}
	}
	return nil
}

// nextTick returns the tick at which the next slot with entries comes up, maxTick if there is none.
func (h *hierarchy) nextTick() int64 {
	tick := h.ring.next(h.cursor)
	for _, l := range h.upper {
		tick = min(tick, l.next(h.cursor))
	}
	return tick
}

// nextDue returns the instant at which the next slot can be drained, and false if all slots are
// empty.
func (h *hierarchy) nextDue() (time.Duration, bool) {
	if h.drained() != nil {
		return time.Duration(h.now), true
	}
	tick := h.nextTick()
	if tick == maxTick {
		return 0, false
	}
	return h.instant(tick), true
}

// turn moves the cursor to the next tick at which slots with entries come up, and takes these slots
// for draining. If there is none until the target, it moves the cursor to the target and returns
// false.
func (h *hierarchy) turn(target int64) bool {
	tick := h.nextTick()
	h.cursor = min(tick, target)
	h.now = h.cursor * h.tick
	if tick > target {
		return false
	}
	for l := range h.levels() {
		if l.begins(tick) {
			l.draining = l.filed.take(l.slot(tick))
		}
	}
	return true
}

// target returns the tick that is reached at an instant. It is below maxTick, which stands for no
// tick.
func (h *hierarchy) target(now time.Duration) int64 {
	return max(min(int64(now)/h.tick, maxTick-1), h.cursor)
}

// instant returns the beginning of a tick.
func (h *hierarchy) instant(tick int64) time.Duration {
	if tick > math.MaxInt64/h.tick {
		return math.MaxInt64
	}
	return time.Duration(tick * h.tick)
}

// slots returns the result of [Wheel.Slots], given a function that counts the entries of a list.
func (h *hierarchy) slots(count func(list) int) iter.Seq[Slot] {
	return func(yield func(Slot) bool) {
		for l := range h.levels() {
			span := h.instant(1 << l.shift)
			if n := count(l.draining); n > 0 && !yield(Slot{time.Duration(h.now), span, n}) {
				return
			}
			first := h.cursor>>l.shift + 1
			for n := range l.mask + 1 {
				slot := l.filed.slots[(first+n)&l.mask]
				if slot.empty() {
					continue
				}
				if pending := count(slot); pending > 0 && !yield(Slot{h.instant((first + n) << l.shift), span, pending}) {
					return
				}
			}
		}
	}
}
