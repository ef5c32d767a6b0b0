package idle

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/engine"
)

func TestARingHasAtMostOneSectorPerTick(t *testing.T) {
	s := newHandSite(t, newEcho(), Config{ReadTimeout: time.Second, Tick: 100 * time.Millisecond})
	c := s.open(1)[0]
	l := s.registry.Load().find(s.el)
	require.Len(t, l.Ring(math.MaxInt).Sectors, 12, "ten ticks, rounded up by the clock and the wheel")
	require.Len(t, l.Ring(1).Sectors, 1)
	s.OnClose(c, nil)
}

// TestNoTaskIsPostedToALoopWithoutConnections closes the last connection of a loop. gnet may have
// stopped it.
func TestNoTaskIsPostedToALoopWithoutConnections(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Minute})
	c := s.open(1)[0]
	l, _, _, _ := s.watched(c)
	s.OnClose(c, nil)
	s.el.tasks = nil
	live, err := s.execute(t.Context(), l, func(context.Context) error { return nil })
	require.NoError(t, err)
	require.False(t, live)
	require.Empty(t, s.el.tasks)
}

func TestInspectHasTheSilencesOfPeers(t *testing.T) {
	t.Parallel()
	e := newEcho()
	r := middleware(t, e, testConfig)
	addr := engine.Serve(t, r, e.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(1))
	dial(t, addr) // it is reaped
	living, leaving := dial(t, addr), dial(t, addr)
	sendEvery(t, living, testConfig.ReadTimeout/2)
	require.NoError(t, leaving.Close())
	eventually(t, "each silence is counted by its end", func() bool {
		found, err := r.Inspect(t.Context(), Query{Silences: true})
		require.NoError(t, err)
		s := found.Silences
		assert.Equal(t, testConfig.ReadTimeout, s.Timeout)
		all := s.Try(0)
		return all.Cut == 1 && all.Ended == 1 && all.Dead == 1 && s.Connections == 3
	})
}
