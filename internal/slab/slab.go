// Package slab has a list of values that never move, with numbers that are used again.
package slab

// pieceLen is how many values are allocated at a time.
const pieceLen = 1 << 10 // power of two

// A Slab holds values by number. The zero Slab is empty. The memory of values is used again and not
// given back. Not safe for concurrent use.
type Slab[T any] struct {
	pieces []*[pieceLen]T
	taken  uint32 // numbers given out so far
	free   queue
}

// Len returns how many numbers were given out so far. All numbers are below it.
func (s *Slab[T]) Len() uint32 { return s.taken }

// At returns the value with a number.
func (s *Slab[T]) At(id uint32) *T { return &s.pieces[id/pieceLen][id%pieceLen] }

// Take returns a zero value and its number. No two values with the same number are taken in the
// same tick, so that a number and a tick name a value.
func (s *Slab[T]) Take(tick uint32) (id uint32, value *T) {
	if f, ok := s.free.peek(); ok && f.tick != tick {
		s.free.pop()
		return f.id, s.At(f.id)
	}
	if s.taken%pieceLen == 0 {
		s.pieces = append(s.pieces, new([pieceLen]T))
	}
	id = s.taken
	s.taken++
	return id, s.At(id)
}

// Put gives back a number that was taken in a tick, and clears its value.
func (s *Slab[T]) Put(id, tick uint32) {
	var zero T
	*s.At(id) = zero
	s.free.push(freed{id, tick})
}

// freed is a number that can be taken again, and the tick in which it was taken last.
type freed struct{ id, tick uint32 }

// A queue is a first-in, first-out list.
type queue struct {
	all  []freed
	head int
}

func (q *queue) push(f freed) { q.all = append(q.all, f) }

func (q *queue) peek() (f freed, ok bool) {
	if q.head == len(q.all) {
		return freed{}, false
	}
	return q.all[q.head], true
}

func (q *queue) pop() {
	if q.head++; q.head >= len(q.all)-q.head { // half of it is empty
		q.all = q.all[:copy(q.all, q.all[q.head:])]
		q.head = 0
	}
}
