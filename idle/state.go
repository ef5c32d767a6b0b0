package idle

import (
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/wheel"
)

// A state is what a loop knows of one connection, apart from what every message needs, which is in its row of the table.
// Owned by the loop goroutine.
type state struct {
	conn     gnet.Conn
	timer    wheel.Handle
	noticed  uint32        // stamp of the last idle event + 1, or 0
	leftover uint32        // bytes that the handler left in gnet's buffer, if the row says so
	since    time.Duration // the peer was heard then, as of the first idle event
}

// statePiece is how many states are allocated at a time.
const statePiece = 1 << 8 // power of two

// states holds the states of a loop by id. They never move.
type states struct {
	pieces []*[statePiece]state
	used   uint32   // ids given out so far
	free   []uint32 // ids to give out again
}

func (s *states) at(id uint32) *state { return &s.pieces[id/statePiece][id%statePiece] }

func (s *states) take() (uint32, *state) {
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		return id, s.at(id)
	}
	if s.used%statePiece == 0 {
		s.pieces = append(s.pieces, new([statePiece]state))
	}
	id := s.used
	s.used++
	return id, s.at(id)
}

func (s *states) put(id uint32) {
	*s.at(id) = state{}
	s.free = append(s.free, id)
}

// A silence is what the judgement of a connection depends on, and nothing else. All instants are durations since the
// start of the clock.
type silence struct {
	timeout    time.Duration
	heardAfter time.Duration // the peer was last heard after this
	heard      time.Duration // and before this
	noticed    time.Duration // the last idle event came before this; 0 if there was none since the peer was heard
}

// deadline returns when the next idle event is due.
func (s silence) deadline() time.Duration { return max(s.heard, s.noticed) + s.timeout }

// A verdict is the outcome of a judgement.
type verdict struct {
	idle  bool          // raise event; otherwise look again at next
	event Event         // if idle
	heard time.Duration // if not 0: the kernel knows that the peer was heard then, which the stamps had missed
	next  time.Duration
}

// judge decides about a connection whose deadline has passed, with the evidence of the kernel.
func (s silence) judge(now time.Duration, ev evidence) verdict {
	switch {
	case ev.found == unread:
		return verdict{heard: now, next: now + s.timeout}
	case ev.found == ended:
		// It is over, not idle. Were gnet never to report it, the question would come up again.
		return verdict{next: now + s.timeout}
	case ev.exact && now-ev.silent-kernelStep > s.heard: // the kernel saw bytes after those that were stamped
		s.heardAfter, s.heard = now-ev.silent-kernelStep, now-ev.silent+kernelStep
		if s.deadline() > now {
			return verdict{heard: s.heard, next: s.deadline()}
		}
	}
	heard, since := s.heard, s.heardAfter // at the latest, and at the earliest
	if ev.exact {                         // a handler that took its time is not held against the peer
		heard = min(max(now-ev.silent, s.heardAfter), s.heard)
		since = heard
	}
	first := s.noticed <= s.heard
	if !first {
		since = s.noticed
	}
	late := now - since - s.timeout
	event := Event{Kind: ReadIdle, First: first, Timeout: s.timeout, Idle: now - heard, Late: late}
	return verdict{idle: true, event: event, next: now + s.timeout}
}
