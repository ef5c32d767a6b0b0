package mono

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInstantsStayInRange(t *testing.T) {
	c := newClock(time.Millisecond, time.Second)
	packed := c.Pack(1000 * millisecond)
	const day = 24 * hour
	for now := Time(1000 * millisecond); now < 400*day; now += day { // 2^31 ticks are 25 days
		packed = c.Clamp(packed, now)
		require.LessOrEqual(t, c.Unpack(packed, now), now, "after %v", now)
		if now > 13*day {
			require.InDelta(t, 1<<30*time.Millisecond, now.Sub(c.Unpack(packed, now)), 25*hour)
		}
	}
	for _, at := range []Time{1, millisecond, millisecond + 1, 1<<32*millisecond - 1, 1 << 32 * millisecond} {
		got := c.Unpack(c.Pack(at), at)
		require.GreaterOrEqual(t, got, at, "rounded up")
		require.LessOrEqual(t, got, at+2*millisecond)
	}
	require.Zero(t, c.Unpack(0, hour))
	require.Zero(t, c.PackSome(0))
}

func TestALongerMemoryInventsNothing(t *testing.T) {
	const tick = 10 * millisecond
	c := newClock(tick, 10*tick)
	for i := range 100 {
		moveTo(c, Time(i)*tick)
	}
	before := c.Before(5, hour)
	require.False(t, c.Remembers(5))
	c.Remember(time.Second)
	require.Equal(t, time.Second, c.Memory())
	require.False(t, c.Remembers(5), "a forgotten move stays forgotten")
	require.Equal(t, before, c.Before(5, hour))
	require.True(t, c.Remembers(95))
	require.Equal(t, Time(95*tick), c.After(95))
	for i := 100; i < 150; i++ {
		moveTo(c, Time(i)*tick)
	}
	require.True(t, c.Remembers(95), "moves are remembered longer now")
	c.Remember(tick)
	require.Equal(t, time.Second, c.Memory(), "the memory never shrinks")
}
