package idle

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
