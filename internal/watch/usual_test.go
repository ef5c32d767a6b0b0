package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/reap"
)

// TestHalfOfTheConnectionsSayWhatIsUsual has clients with a timeout of their own below that of the
// Config, and one with a very short one.
func TestHalfOfTheConnectionsSayWhatIsUsual(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour, Tick: 100 * time.Millisecond})
	all := map[uint32]*testConn{}
	usual := func() time.Duration {
		for range 2000 {
			p.pass(500 * time.Millisecond)
			for _, c := range all {
				c.Front.Heard = p.Clock.Stamp().Short()
			}
			for p.Groups.Step() {
			}
		}
		return p.Rule().Usual
	}
	require.Equal(t, time.Hour, p.Rule().Usual)
	for n := range 12 {
		id, c := p.open()
		own := reap.ConnLimits{ReadTimeout: 90 * time.Second}
		if n == 0 {
			own.ReadTimeout = time.Second
		}
		require.NoError(t, p.SetLimits(id, c, own))
		all[id] = c
	}
	require.Equal(t, 90*time.Second, usual())
	for id, c := range all {
		if id < 6 {
			p.Drop(id, c)
			delete(all, id)
		}
	}
	for range 8 {
		id, c := p.open()
		all[id] = c
	}
	require.Equal(t, time.Hour, usual())
	require.Empty(t, p.closed)
}
