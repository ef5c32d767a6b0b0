package idlenet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/sim"
)

// newQuietWorld builds a world without faults and without connections, for a test of one promise.
func newQuietWorld(t testing.TB, cfg Config) *simWorld {
	w := &simWorld{quiet: true, cfg: cfg, late: 100 * time.Microsecond, work: time.Millisecond, addr: sim.Addrs[0]}
	if w.cfg.OnReap == nil {
		w.cfg.OnReap = w.onReap
	}
	w.BuildQuiet(w, simTraits)
	w.listen(2)
	t.Cleanup(func() { require.False(t, w.Failed(), w.Failure()) })
	return w
}

// change changes the Config of a quiet world.
func (w *simWorld) change(t testing.TB, edit func(*Config)) {
	require.NoError(t, w.ln.Update(edit))
	w.cfg = w.ln.Config()
	w.Changed(&w.cfg)
}

// accept accepts a connection of a peer that sends only what the test sends. Its server reads at
// once, and does not close it.
func (w *simWorld) accept() *simLife {
	l := w.NewSilentLife().Conn.(*simLife)
	l.simManners = simManners{deaf: true}
	l.accept()
	return l
}

// lookSoon makes the next round look at connections.
func (w *simWorld) lookSoon(all ...*simLife) {
	for _, l := range all {
		w.ln.with(l.c, func(s *shard, _ uint32, n *conn) { s.Soon(n) })
	}
}
