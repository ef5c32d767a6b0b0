package wheel

import "math"

// Handle names one scheduled entry of one Wheel. The zero Handle names none. A Handle of an entry that has fired or was
// cancelled is stale: the operations on it do nothing and say so. It must not be given to another Wheel.
type Handle uint64

// newHandle packs the id of an entry with its generation.
func newHandle(id, generation uint32) Handle { return Handle(generation)<<32 | Handle(id) }

func (h Handle) id() uint32         { return uint32(h) }
func (h Handle) generation() uint32 { return uint32(h >> 32) }

// unfiled is the deadline of an entry whose id is in no slot.
const unfiled = math.MinInt64

// An entry is one place for a scheduled thing. Its id is in exactly one slot while deadline is not unfiled, and in none
// otherwise. This, and that the slot comes up no later than the deadline, are the invariants of the whole package.
type entry[T any] struct {
	deadline   int64  // nanoseconds since the caller's origin; kept after Cancel, when it still bounds the slot
	generation uint32 // odd while pending, one more after it fired or was cancelled
	payload    T
}

func (e *entry[T]) pending() bool { return e.generation&1 == 1 }

// slabEntries is how many entries are allocated at a time.
const slabEntries = 1 << 10 // power of two

// slabs holds entries by id. They never move, so a pointer to one stays good while others are added.
type slabs[T any] struct {
	pieces []*[slabEntries]entry[T]
	used   uint32 // ids given out so far
}

func (s *slabs[T]) at(id uint32) *entry[T] {
	return &s.pieces[id/slabEntries][id%slabEntries]
}

// find returns the pending entry of h, or nil if h is stale.
func (s *slabs[T]) find(h Handle) *entry[T] {
	if h.id() >= s.used {
		return nil
	}
	e := s.at(h.id())
	if e.generation != h.generation() || !e.pending() {
		return nil
	}
	return e
}

// grow returns an id that was never used.
func (s *slabs[T]) grow() uint32 {
	if s.used == math.MaxUint32 {
		panic("wheel: more than 4294967295 entries")
	}
	if s.used%slabEntries == 0 {
		s.pieces = append(s.pieces, new([slabEntries]entry[T]))
	}
	id := s.used
	s.used++
	s.at(id).deadline = unfiled
	return id
}
