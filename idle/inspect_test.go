package idle

import (
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
