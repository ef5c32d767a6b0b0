package idle

import (
	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/connstate"
	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/wheel"
)

// A state is what not every message needs of one connection. Owned by the loop goroutine.
type state struct {
	connstate.State
	leftover uint32    // bytes left in gnet's buffer, if the record has the flag Leftover
	conn     gnet.Conn // gnet's own, or a wrapper that hides it; nil if the state is free
	timer    wheel.Handle
}

func (s *state) used() bool          { return s.conn != nil }
func (s *state) is(c gnet.Conn) bool { return s.conn != nil && address(s.conn) == address(c) }

// facts collects the facts about a connection at an instant of the real clock. It changes nothing.
func (l *loop) facts(r *conntable.Record, id uint32, s *state, now mono.Time) verdict.Facts {
	lim, output := l.limitsOf(s), 0
	if lim.PollOutput() > 0 || lim.Drain != (verdict.Drain{}) {
		output = s.conn.OutboundBuffered()
	}
	f := s.Facts(l.clock, r, &lim.Limits, output, now)
	f.Random = s.Random(id)
	return f
}

// learn updates the facts with the kernel's answer, and keeps them.
func (l *loop) learn(r *conntable.Record, s *state, f *verdict.Facts, ev *verdict.Evidence, now mono.Time, seemsDead bool) {
	if s.Learn(l.clock, r, &l.limitsOf(s).Limits, f, ev, now) {
		if seemsDead {
			l.counters.SavedByKernel++
		}
		l.noteHeard(r.Heard.Unwrap(l.clock.Stamp()))
	}
	if !ev.Dated && !l.reaper.undated.Load() {
		l.reaper.undated.Store(true)
	}
}
