package idle

import (
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// A handLoop is a scriptedLoop that closes its connections as gnet does.
type handLoop struct {
	*scriptedLoop
	r *Reaper
}

func (l *handLoop) Close(c gnet.Conn) error {
	l.r.OnClose(c, nil)
	return nil
}

// A handSite is a Reaper on one loop with a real clock that the test moves, and a kernel that answers
// what the test says. Its driver does nothing by itself.
type handSite struct {
	*Reaper
	handClock
	el     *handLoop
	asked  int // questions of all kinds
	answer verdict.Evidence
	opened int
}

func newHandSite(t *testing.T, h gnet.EventHandler, cfg Config) *handSite {
	t.Helper()
	cfg, err := cfg.check(0)
	require.NoError(t, err)
	s := &handSite{answer: verdict.Evidence{Queued: -1}}
	s.Reaper = newReaper(h, cfg, s.elapsed, questions{
		ask: func(_ int, ev *verdict.Evidence) {
			s.asked++
			*ev = s.answer
		},
		holdsOutput: func(int) bool {
			s.asked++
			return s.answer.Queued > 0
		},
	})
	s.startDriver = func(d *driver) { close(d.done) }
	s.el = &handLoop{newScriptedLoop(), s.Reaper}
	return s
}

// open opens connections.
func (s *handSite) open(n int) (conns []*scriptedConn) {
	for range n {
		s.opened++
		c := newScriptedConn(s.el, s.opened)
		s.OnOpen(c)
		conns = append(conns, c)
	}
	return conns
}

// pass lets time pass in ticks, and runs the tasks that are posted.
func (s *handSite) pass(t *testing.T, d time.Duration) {
	t.Helper()
	for end := s.at + d; s.at < end; {
		s.at += s.clock.Tick()
		s.round()
		for len(s.el.tasks) > 0 {
			require.NoError(t, s.el.run(t))
		}
	}
}

func TestATaskIsBoundedWhateverTheHandlerTakes(t *testing.T) {
	e := newEcho()
	s := newHandSite(t, e, Config{ReadTimeout: time.Second, Tick: 100 * time.Millisecond, OutageGrace: -1})
	e.closed = func(gnet.Conn, error) gnet.Action {
		s.at += time.Millisecond
		return gnet.None
	}
	conns := s.open(100)
	for range 11 {
		s.at += 100 * time.Millisecond
		s.round()
	}
	began := s.at
	require.NoError(t, s.el.run(t))
	require.Less(t, s.at-began, 2*time.Millisecond, "half a millisecond, and the handler that was running then")
	for _, c := range conns[s.Stats().Closed:] {
		s.OnClose(c, nil)
	}
}

// TestThousandsOfTimeoutsAreNotAllRebuiltAtOnce: each is when it is used next.
func TestThousandsOfTimeoutsAreNotAllRebuiltAtOnce(t *testing.T) {
	w := newWatched(t, Config{ReadTimeout: time.Hour})
	s := w.state()
	require.NoError(t, w.r.SetTimeouts(w.c, Timeouts{Read: 2 * time.Hour}))
	old := w.l.limits.all[s.limits]
	require.NoError(t, w.r.Update(Config{ReadTimeout: time.Hour, MaxAge: time.Hour}))
	w.l.follow(w.r.settings.Load())
	require.Same(t, old, w.l.limits.all[s.limits])
	require.Equal(t, time.Hour, w.l.limitsOf(s).Age)
	require.Equal(t, 2*time.Hour, w.l.limitsOf(s).Read)
	require.NotSame(t, old, w.l.limits.all[s.limits])
}

// TestADeadlineIsNotATickLateBecauseAMoveWas: the deadline is counted from a move of the clock, and
// lies as long after a tick as that move was late.
func TestADeadlineIsNotATickLateBecauseAMoveWas(t *testing.T) {
	const tick, late = 100 * time.Millisecond, time.Millisecond
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Second, Tick: tick, OutageGrace: -1, Reset: []Kind{}})
	c := s.open(1)[0]
	s.at = late // from here on each move is a millisecond late
	s.pass(t, 2*tick)
	s.receive(c) // after the move at 201 ms: it may have come until the one at 301 ms
	s.pass(t, time.Second)
	require.Zero(t, s.Stats().Closed)
	s.pass(t, tick)
	require.EqualValues(t, 1, s.Stats().Closed, "at 1301 ms, not at 1401 ms")
}
