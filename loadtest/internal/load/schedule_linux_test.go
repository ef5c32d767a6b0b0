package load

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

func TestScheduleIsInOrder(t *testing.T) {
	conns, s := make([]conn, 1000), schedule{}
	for i := range conns {
		conns[i] = conn{place: int32(i), due: never}
		s = append(s, &conns[i])
	}
	for range 3 { // the last time counts
		for i := range conns {
			s.set(&conns[i], rand.Int64N(500))
		}
	}
	var got []int64
	for s[0].due != never {
		got = append(got, s[0].due)
		s.set(s[0], never)
	}
	require.True(t, slices.IsSorted(got))
	require.Len(t, got, 1000)
}

func TestMessageTimesKeepOrderAndDistance(t *testing.T) {
	for _, jitter := range []float64{0, 0.1, 0.5} {
		s := Spec{GroupSetup: like{Behaviour: Heartbeat, Interval: time.Second, Jitter: jitter}}
		c := &conn{group: &group{Spec: s}, base: int64(time.Minute), number: 7}
		for k := range uint32(1000) {
			at, exact := c.messageTime(k), c.base+int64(k)*int64(s.Interval)
			require.LessOrEqual(t, max(at-exact, exact-at), int64(jitter*float64(s.Interval))+s.grid())
			require.LessOrEqual(t, at, c.messageTime(k+1))
		}
	}
}

func TestRepeatedMessages(t *testing.T) {
	m := padding(32)
	require.Len(t, m, 32)
	require.Equal(t, byte('\n'), m[31])
	require.NotContains(t, string(m[:31]), "\n")
	require.GreaterOrEqual(t, len(repeated(m)), 1<<16+32)
}

func TestRampReachesRate(t *testing.T) {
	p := Plan{Setup: result.Setup{Rate: 1000}}
	require.Equal(t, int64(2*time.Second), p.opensAt(2000))
	p.Ramp = 2 * time.Second
	require.Zero(t, p.opensAt(0))
	require.InDelta(t, time.Second, p.opensAt(250), float64(time.Millisecond), "a quarter of the ramp after half its time")
	require.InDelta(t, 2*time.Second, p.opensAt(1000), float64(time.Millisecond), "half as many as without it")
	require.InDelta(t, 3*time.Second, p.opensAt(2000), float64(time.Millisecond), "then 1,000 per second")
}
