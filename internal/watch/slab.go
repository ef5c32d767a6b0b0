package watch

// pieceLen is how many values a slab allocates at a time.
const pieceLen = 1 << 10 // power of two

// A slab holds values by number. They never move. The zero slab is empty. The memory of values is
// used again and not given back. Not safe for concurrent use.
type slab[T any] struct {
	pieces []*[pieceLen]T
	taken  uint32  // numbers given out so far; all numbers are below it
	freed  []freed // a queue from head on
	head   int
}

// freed is a number that can be taken again, and the tick in which it was taken last.
type freed struct{ id, tick uint32 }

func (s *slab[T]) at(id uint32) *T { return &s.pieces[id/pieceLen][id%pieceLen] }

// take returns a zero value and its number. No two values with the same number are taken in the
// same tick, so that a number and a tick name a value.
func (s *slab[T]) take(tick uint32) (id uint32, value *T) {
	if s.head < len(s.freed) && s.freed[s.head].tick != tick {
		id = s.freed[s.head].id
		if s.head++; s.head >= len(s.freed)-s.head { // half of the queue is empty
			s.freed, s.head = s.freed[:copy(s.freed, s.freed[s.head:])], 0
		}
		return id, s.at(id)
	}
	if s.taken%pieceLen == 0 {
		s.pieces = append(s.pieces, new([pieceLen]T))
	}
	id = s.taken
	s.taken++
	return id, s.at(id)
}

// put gives back a number that was taken in a tick, and clears its value.
func (s *slab[T]) put(id, tick uint32) {
	var zero T
	*s.at(id) = zero
	s.freed = append(s.freed, freed{id, tick})
}
