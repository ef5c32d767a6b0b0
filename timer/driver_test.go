package timer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestATimerHasAGoroutineOnlyWhileSomethingIsPending(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, timer *Timer) {
		driving := func() bool {
			synctest.Wait()
			timer.core.mu.Lock()
			defer timer.core.mu.Unlock()
			return timer.core.driving
		}
		require.False(t, driving())
		add(t, timer, time.Second, nothing)
		add(t, timer, time.Hour, nothing)
		require.True(t, driving())
		time.Sleep(time.Minute)
		require.True(t, driving())
		time.Sleep(time.Hour)
		require.False(t, driving())
		add(t, timer, time.Second, nothing)
		require.True(t, driving())
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 3, timer.Stats().Runs)
	})
}

func TestADriverDoesNotEndIfATimeoutIsFiledMeanwhile(t *testing.T) {
	timer := newTestTimer(t, Config{})
	c := timer.core
	c.driving = true // by this test
	require.True(t, c.leave())
	c.driving = true
	add(t, timer, time.Hour, nothing)
	require.False(t, c.leave())
	require.True(t, c.driving)
	c.driving = false
}
