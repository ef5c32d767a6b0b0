package wheel

import "math"

// Handle names one scheduled entry of one Wheel. The zero Handle names none. The Handle of an entry
// that has expired or was cancelled is stale: operations on it do nothing and report so. A Handle
// must not be passed to another Wheel.
type Handle uint64

// newHandle packs the id of an entry with its generation.
func newHandle(id, generation uint32) Handle { return Handle(generation)<<32 | Handle(id) }

func (h Handle) id() uint32         { return uint32(h) }
func (h Handle) generation() uint32 { return uint32(h >> 32) }

// unfiled is the deadline of an entry that is in no slot.
const unfiled = math.MinInt64

// A pair is two entries. The id of an entry is in exactly one slot while its deadline is not
// unfiled, and in none otherwise. The slot comes up no later than the deadline. These are the
// invariants of the package. Entries are stored in pairs so that the alignment of the payload costs
// no padding and the fields of an entry lie close together.
type pair[T any] struct {
	// Nanoseconds since the caller's origin; kept after Cancel, when it still bounds the slot.
	deadline   [2]int64
	generation [2]uint32 // odd while pending, one more after it expired or was cancelled
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

// slabPairs is the number of pairs that are allocated at a time. The assembly of prefetch uses it.
const slabPairs = 1 << 9 // power of two

// slabs has the entries by id. They never move, so a pointer to an entry stays valid while others
// are added.
type slabs[T any] struct {
	pieces []*[slabPairs]pair[T]
	used   uint32 // ids allocated so far, including id 0
}

func (s *slabs[T]) at(id uint32) entry[T] {
	return entry[T]{&s.pieces[id/2/slabPairs][id/2%slabPairs], id}
}

// find returns the pending entry of h, and false if h is stale. Handles have odd generations only,
// so they never match an entry that is not pending.
func (s *slabs[T]) find(h Handle) (e entry[T], ok bool) {
	if int(h.id()/2/slabPairs) >= len(s.pieces) {
		return e, false
	}
	e = s.at(h.id())
	return e, e.generation() == h.generation()
}

// grow returns an id that was never used. It never returns id 0, which has a generation other than
// 0, so that the zero Handle matches no entry.
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
