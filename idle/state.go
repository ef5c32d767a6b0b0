package idle

import (
	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/wheel"
)

// A state is what a loop knows of one connection, apart from what every message needs, which is in its row of the table.
// Owned by the loop goroutine.
type state struct {
	conn     gnet.Conn // gnet's own, unless it is wrapped and cannot be found; nil if the state is free
	timer    wheel.Handle
	instants [instants]uint32 // packed by the clock; 0 for none
	moved    uint32           // the counter of output, as of the last look
	received uint32           // bytes that had come when the window of MinRate began
	leftover uint32           // bytes that the handler left in gnet's buffer, if the row says so
	limits   uint16           // index into those of the loop
	holds    uint32           // calls of Hold less those of Release
	flags    flags
}

func (s *state) used() bool          { return s.conn != nil }
func (s *state) is(c gnet.Conn) bool { return s.conn != nil && address(s.conn) == address(c) }

// The instants of a state; see verdict.Facts for what they mean.
const (
	atOpened = iota
	atHeard  // set at each look, for when the stamp in the row is too old to tell
	atWrote
	atStalled
	atOver
	atRated
	atPinged
	atNoticed // of ReadIdle, and then WriteIdle and AllIdle

	instants = atNoticed + idleReasons
)

// flags are what is true or not about a connection, and in the low bits how many pings were missed.
type flags uint8

const (
	missedMask flags = maxMaxMissed
	blind      flags = 0x10 // nobody knows when something was sent
	exempt     flags = 0x20
	leaving    flags = 0x40
	observed   flags = 0x80 // ObserveOnly has spared it
)

func (f flags) has(flag flags) bool { return f&flag != 0 }

func (f *flags) set(flag flags, on bool) {
	*f &^= flag
	if on {
		*f |= flag
	}
}

func (f flags) missed() int { return int(f & missedMask) }

func (f *flags) setMissed(n int) { *f = *f&^missedMask | flags(n)&missedMask }

// statePiece is how many states are allocated at a time.
const statePiece = 1 << 8 // power of two

// states holds the states of a loop by id. They never move.
type states struct {
	pieces []*[statePiece]state
	used   uint32 // ids given out so far
	free   queue  // ids to give out again
}

func (s *states) at(id uint32) *state { return &s.pieces[id/statePiece][id%statePiece] }

// take returns an empty state for a connection that was opened at an instant. No other one that was opened in the same tick
// has had the same id.
func (s *states) take(at uint32) (uint32, *state) {
	if id, ok := s.free.peek(); ok && s.at(id).instants[atOpened] != at {
		s.free.pop()
		*s.at(id) = state{}
		s.at(id).instants[atOpened] = at
		return id, s.at(id)
	}
	if s.used%statePiece == 0 {
		s.pieces = append(s.pieces, new([statePiece]state))
	}
	id := s.used
	s.used++
	s.at(id).instants[atOpened] = at
	return id, s.at(id)
}

// put gives an id back.
func (s *states) put(id uint32) {
	at := s.at(id).instants[atOpened]
	*s.at(id) = state{}
	s.at(id).instants[atOpened] = at
	s.free.push(id)
}

// A queue is a list of ids, first in, first out.
type queue struct {
	ids  []uint32
	head int
}

func (q *queue) push(id uint32) { q.ids = append(q.ids, id) }

func (q *queue) peek() (id uint32, ok bool) {
	if q.head == len(q.ids) {
		return 0, false
	}
	return q.ids[q.head], true
}

func (q *queue) pop() {
	if q.head++; q.head >= len(q.ids)-q.head { // half of it is empty
		q.ids = q.ids[:copy(q.ids, q.ids[q.head:])]
		q.head = 0
	}
}
