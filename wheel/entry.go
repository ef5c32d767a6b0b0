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

// A pair is two entries. Each is one place for a scheduled thing: its id is in exactly one slot while its deadline is not
// unfiled, and in none otherwise. This, and that the slot comes up no later than the deadline, are the invariants of the
// whole package. They come in pairs so that no alignment of the payload costs padding, and all of one lies close together.
type pair[T any] struct {
	deadline   [2]int64  // nanoseconds since the caller's origin; kept after Cancel, when it still bounds the slot
	generation [2]uint32 // odd while pending, one more after it fired or was cancelled
	payload    [2]T
}

// An entry is one of a pair.
type entry[T any] struct {
	pair *pair[T]
	i    uint32 // 0 or 1
}

func (e entry[T]) deadline() int64      { return e.pair.deadline[e.i&1] }
func (e entry[T]) setDeadline(at int64) { e.pair.deadline[e.i&1] = at }
func (e entry[T]) generation() uint32   { return e.pair.generation[e.i&1] }
func (e entry[T]) nextGeneration()      { e.pair.generation[e.i&1]++ }
func (e entry[T]) pending() bool        { return e.generation()&1 == 1 }
func (e entry[T]) payload() *T          { return &e.pair.payload[e.i&1] }

// slabPairs is how many pairs are allocated at a time. The assembly of prefetch knows it.
const slabPairs = 1 << 9 // power of two

// slabs holds entries by id. They never move, so an entry stays good while others are added.
type slabs[T any] struct {
	pieces []*[slabPairs]pair[T]
	used   uint32 // ids given out so far, and id 0
}

func (s *slabs[T]) at(id uint32) entry[T] {
	return entry[T]{&s.pieces[id/2/slabPairs][id/2%slabPairs], id}
}

// find returns the pending entry of h, and false if h is stale. Handles carry odd generations only, so that an entry that
// is not pending matches none.
func (s *slabs[T]) find(h Handle) (e entry[T], ok bool) {
	if int(h.id()/2/slabPairs) >= len(s.pieces) {
		return e, false
	}
	e = s.at(h.id())
	return e, e.generation() == h.generation()
}

// grow returns an id that was never used. Id 0 is not given out: its generation is not 0, so that no entry matches the
// zero Handle.
func (s *slabs[T]) grow() uint32 {
	if s.used == math.MaxUint32 {
		panic("wheel: more than 4294967294 entries")
	}
	if s.used%(2*slabPairs) == 0 {
		s.pieces = append(s.pieces, new([slabPairs]pair[T]))
	}
	id := s.used
	s.used++
	e := s.at(id)
	e.setDeadline(unfiled)
	if id == 0 {
		e.pair.generation[0] = 2
		return s.grow()
	}
	return id
}
