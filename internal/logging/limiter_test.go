package logging

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
)

func TestOneWarningPerInterval(t *testing.T) {
	for _, first := range []mono.Time{0, 1, mono.Time(Interval), mono.Time(time.Hour)} {
		var l Limiter
		for _, step := range []struct {
			after time.Duration
			want  bool
		}{
			{0, true}, {0, false}, {1, false}, {Interval - 1, false}, {Interval, true},
			{Interval + 1, false}, {2*Interval - 1, false}, {5 * Interval, true}, {5 * Interval, false},
		} {
			require.Equal(t, step.want, l.AllowAt(first.Add(step.after)), "%v after the first at %v", step.after, first)
		}
	}
}

func TestAllowReadsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start = time.Now()
		defer func() { start = time.Now() }()
		var l, other Limiter
		require.True(t, l.Allow())
		require.False(t, l.Allow())
		require.True(t, other.Allow(), "each Limiter counts for itself")
		time.Sleep(Interval - 1)
		require.False(t, l.Allow())
		time.Sleep(time.Nanosecond)
		require.True(t, l.Allow())
	})
}

func TestOneOfManyGoroutinesIsAllowed(t *testing.T) {
	var l Limiter
	var allowed atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if l.AllowAt(0) {
					allowed.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, allowed.Load())
}

func TestALimiterDoesNotAllocate(t *testing.T) {
	var l Limiter
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Allow() }))
}
