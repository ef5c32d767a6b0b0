package idle

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// inspectLoop inspects the only loop of a site.
func (s *handSite) inspectLoop(t *testing.T, q Query) Inspection {
	t.Helper()
	i, err := s.watch.NewInspector(q)
	require.NoError(t, err)
	s.registry.Load().loops[0].Inspect(0, i)
	return i.Result()
}

// TestInspectCountsByState judges nothing at last while deadlines pass, as on an overloaded loop.
func TestInspectCountsByState(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Minute, HandshakeTimeout: time.Minute})
	var conns []Conn
	for _, c := range s.open(4) {
		conns = append(conns, handle(s.Reaper, c))
	}
	conns[0].Hold()
	conns[1].Ready()
	conns[2].Ready()
	want := map[string]int{"exempt": 0, "observed": 0, "leaving": 0, "stalled": 0}
	want["held"], want["open"], want["handshake"] = 1, 2, 1
	got := s.inspectLoop(t, Query{States: true})
	require.Equal(t, want, got.States)
	require.Zero(t, got.Overdue)
	s.at = s.at.Add(time.Hour)
	s.watch.Clock.Move()
	require.Equal(t, 4, s.inspectLoop(t, Query{States: true}).Overdue)
}

// TestTheLargestOutputsAreListed has output in the kernel, which only a question tells.
func TestTheLargestOutputsAreListed(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{WriteStallTimeout: time.Hour})
	conns := s.open(20)
	s.Reaper.kernel.ask = func(fd int, ev *verdict.Evidence) {
		*ev = verdict.Evidence{Queued: 10 * (fd - conns[0].fd) % 170}
	}
	got := s.inspectLoop(t, Query{Limit: 1, By: "output"})
	require.Equal(t, 160, got.Connections[0].Output)
}

func TestARingShowsWhenDeadlinesComeUp(t *testing.T) {
	const timeout, tick = 5 * time.Second, 100 * time.Millisecond
	s := newHandSite(t, &reader{}, Config{ReadTimeout: timeout, Tick: tick, OutageGrace: -1})
	conns := s.open(4)
	s.OnClose(conns[3], nil)
	ring := func(sectors int) Ring { return s.inspectLoop(t, Query{Sectors: sectors}).Rings[0] }
	got := ring(20)
	want := Ring{Loop: 1, Connections: 3, Turn: 5400 * time.Millisecond, Sectors: make([]int, 18), Reaped: got.Reaped}
	due := time.Duration(s.registry.Load().loops[0].Schedule.NextDue())
	want.Sectors[due/(3*tick)] = 3 // three ticks per sector
	require.Equal(t, want, got)
	require.InDelta(t, timeout, due, float64(timeout)/2)
	require.Len(t, ring(math.MaxInt).Sectors, 52, "one sector per tick, and two for rounding")
	require.Len(t, ring(1).Sectors, 1)
	_, err := s.Inspect(t.Context(), Query{Sectors: -1})
	require.ErrorContains(t, err, "Query.Sectors is -1")

	s.pass(t, 2*timeout)
	rings, err := ringsOf(t.Context(), s.Reaper, 8)
	require.NoError(t, err)
	require.Len(t, rings, 1, "the ring of an empty loop stays")
	require.Zero(t, rings[0].Connections)
	require.EqualValues(t, 3, rings[0].Reaped[reap.ReadIdle])
}

// TestInspectingChangesNothing compares everything that a loop stores about its connections.
func TestInspectingChangesNothing(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{
		ReadTimeout: 10 * time.Second, AllTimeout: time.Minute, MaxAge: time.Hour,
		Heartbeat: Heartbeat{Interval: time.Second, Ping: func(gnet.Conn) []byte { return nil }},
	})
	conns := s.open(3)
	s.pass(t, 3*time.Second)
	s.receive(conns[1])
	s.at = s.at.Add(2 * time.Second)
	stored := func() (all []any) {
		for _, c := range conns {
			l, r, _, st := s.watched(c)
			all = append(all, *r, *st, l.Counters)
		}
		return all
	}
	for range 3 {
		before := stored()
		got := s.inspectLoop(t, Query{Limit: 2, States: true, By: "output", Sectors: 4})
		require.Len(t, got.Connections, 2)
		require.Equal(t, before, stored())
		s.pass(t, time.Second)
	}
}

// TestMessagesOfALoopThatGoesQuietAreCounted counts the states, as each scrape does. Nothing else
// happens on the loop for a long time.
func TestMessagesOfALoopThatGoesQuietAreCounted(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Hour})
	c := s.open(1)[0]
	for range 100 {
		s.receive(c)
	}
	counted := make(chan error)
	go func() {
		_, err := s.Inspect(t.Context(), Query{States: true})
		counted <- err
	}()
	require.NoError(t, s.el.run(t))
	require.NoError(t, <-counted)
	require.EqualValues(t, 100, s.Stats().Reads)
}

// TestInspectOfALoopThatDoesNotAnswer has a loop that is blocked, and one that takes no task.
func TestInspectOfALoopThatDoesNotAnswer(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Minute})
	ended, end := context.WithCancel(t.Context())
	end()
	_, err := s.Inspect(ended, Query{Limit: 1})
	require.ErrorIs(t, err, context.Canceled, "no loop is asked")
	s.open(1)
	for refusal, want := range map[error]error{
		nil: context.DeadlineExceeded, gneterrors.ErrEngineShutdown: gneterrors.ErrEngineShutdown,
	} {
		s.el.refusal = refusal
		ended := make(chan error)
		go func() { // not on the goroutine of the loop
			ctx, cancel := context.WithTimeout(t.Context(), tickOf)
			defer cancel()
			_, err := s.Inspect(ctx, Query{Limit: 1})
			ended <- err
		}()
		require.ErrorIs(t, <-ended, want)
	}
}

// TestNoTaskIsPostedToALoopWithoutConnections closes the last connection of a loop. gnet may have
// stopped it.
func TestNoTaskIsPostedToALoopWithoutConnections(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Minute})
	s.OnClose(s.open(1)[0], nil)
	err := s.execute(t.Context(), s.registry.Load().loops[0], func(context.Context) error { return nil })
	require.ErrorIs(t, err, errEmpty)
}
