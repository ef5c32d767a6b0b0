package coarse

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInstantsStayInRange(t *testing.T) {
	c := newClock(time.Millisecond, time.Second)
	packed := c.Pack(time.Second)
	for now := time.Second; now < 400*24*time.Hour; now += 24 * time.Hour { // 2^31 ticks are 25 days
		packed = c.Clamp(packed, now)
		require.LessOrEqual(t, c.Unpack(packed, now), now, "after %v", now)
		if now > 13*24*time.Hour {
			require.InDelta(t, now-1<<30*time.Millisecond, c.Unpack(packed, now), float64(25*time.Hour))
		}
	}
	for _, at := range []time.Duration{1, time.Millisecond, time.Millisecond + 1, 1<<32*time.Millisecond - 1, 1 << 32 * time.Millisecond} {
		got := c.Unpack(c.Pack(at), at)
		require.GreaterOrEqual(t, got, at, "rounded up")
		require.LessOrEqual(t, got, at+2*time.Millisecond)
	}
	require.Zero(t, c.Unpack(0, time.Hour))
	require.Zero(t, c.PackSome(0))
}

func TestALongerMemoryInventsNothing(t *testing.T) {
	const tick = 10 * time.Millisecond
	c := newClock(tick, 10*tick)
	for i := range 100 {
		moveTo(c, time.Duration(i)*tick)
	}
	before := c.Before(5, time.Hour)
	require.False(t, c.Remembers(5))
	c.Remember(time.Second)
	require.Equal(t, time.Second, c.Memory())
	require.False(t, c.Remembers(5), "a forgotten move stays forgotten")
	require.Equal(t, before, c.Before(5, time.Hour))
	require.True(t, c.Remembers(95))
	require.Equal(t, 95*tick, c.After(95))
	for i := 100; i < 150; i++ {
		moveTo(c, time.Duration(i)*tick)
	}
	require.True(t, c.Remembers(95), "moves are remembered longer now")
	c.Remember(tick)
	require.Equal(t, time.Second, c.Memory(), "the memory never shrinks")
}
