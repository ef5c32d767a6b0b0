package wheel

import "math"

// Handle names one scheduled entry of one Wheel, until the entry has expired or was cancelled. Then
// the Handle is stale: operations on it do nothing and return false. The zero Handle names no
// entry. A Handle must not be passed to another Wheel.
type Handle uint64

// newHandle packs the id of an entry with its generation.
func newHandle(id, generation uint32) Handle { return Handle(generation)<<32 | Handle(id) }

func (h Handle) id() uint32         { return uint32(h) }
func (h Handle) generation() uint32 { return uint32(h >> 32) }

// An entry is a member of the list of one slot while it is pending, and of the list of free entries
// otherwise. Its slot comes up no later than its deadline. A move to a later deadline touches
// nothing else.
type entry struct {
	deadline   int64  // nanoseconds since the caller's origin
	generation uint32 // odd while pending, one more after it has expired or was cancelled
	slot       slot
}

func (e *entry) pending() bool { return e.generation&1 == 1 }

// A link has the neighbours of an entry in its list, 0 for none.
type link struct{ next, prev uint32 }

// pieceEntries is the number of entries that are allocated at a time.
const pieceEntries = 1 << 9 // power of two

type piece struct {
	entries [pieceEntries]entry
	links   [pieceEntries]link
}

// A slab has the entries by id. They never move, so a pointer to an entry stays valid while others
// are added. Id 0 is never used, so that 0 means none.
type slab struct {
	pieces []*piece
	used   uint32 // ids allocated so far, including id 0
	free   uint32 // the first free id; the others are linked by next
}

func (s *slab) at(id uint32) *entry {
	return &s.pieces[id/pieceEntries].entries[id%pieceEntries]
}

func (s *slab) linkOf(id uint32) *link {
	return &s.pieces[id/pieceEntries].links[id%pieceEntries]
}

// find returns the pending entry of h, nil if h is stale. Handles have odd generations only, so
// they never match an entry that is not pending.
func (s *slab) find(h Handle) *entry {
	if int(h.id()/pieceEntries) >= len(s.pieces) {
		return nil
	}
	if e := s.at(h.id()); e.generation == h.generation() && h != 0 {
		return e
	}
	return nil
}

// take returns a free entry as a pending one, which is in no slot yet.
func (s *slab) take() (id uint32, e *entry) {
	if s.free == 0 {
		s.grow()
	}
	id = s.free
	e = s.at(id)
	s.free = s.linkOf(id).next
	e.generation++
	return id, e
}

// grow adds an entry that was never used to the empty list of free ones.
func (s *slab) grow() {
	if s.used == math.MaxUint32 {
		panic("wheel: more than 4294967294 entries")
	}
	if s.used%pieceEntries == 0 {
		s.pieces = append(s.pieces, new(piece))
	}
	s.used = max(s.used, 1)
	s.free = s.used
	s.used++
}

// put makes all Handles of an entry stale and adds it to the free ones.
func (s *slab) put(id uint32) {
	s.at(id).generation++
	s.linkOf(id).next, s.free = s.free, id
}
