package server

import (
	"math"
	"net"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
)

func TestTheSqueezeFollowsThePressureWithHysteresis(t *testing.T) {
	var s squeezer
	for _, step := range []struct {
		pressure, want float64
	}{
		{0, 0}, {0.85, 0}, {0.90, 0.5}, {0.895, 0.5}, {0.889, 0.5}, {0.86, 0.3}, {0.87, 0.3}, {0.95, 1}, {2, 1}, {0.94, 1}, {0.92, 0.9}, {0.5, 0},
	} {
		by, _ := s.follow(step.pressure)
		require.InDelta(t, step.want, by, 1e-9, "at %v", step.pressure)
	}
	_, changed := s.follow(0.1)
	require.False(t, changed)
}

func TestPressureHasANameAndIsTheHighest(t *testing.T) {
	require.Equal(t, "connections", Pressure{0.9, 0.1, 0.2}.name())
	require.Equal(t, "descriptors", Pressure{0.1, 0.9, 0.2}.name())
	require.Equal(t, "heap", Pressure{0.1, 0.2, 0.9}.name())
	require.InDelta(t, 0.9, Pressure{0.1, 0.2, 0.9}.Highest(), 0)
}

func TestHeapPressure(t *testing.T) {
	h := &host{}
	require.Zero(t, h.pressure().Heap, "without GOMEMLIMIT")
	debug.FreeOSMemory() // a collection, so that there is a figure
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	debug.SetMemoryLimit(1 << 20)
	require.Greater(t, h.pressure().Heap, 0.1)
	debug.SetMemoryLimit(math.MaxInt64)
}

// TestIdleTimeoutsShrinkUnderPressure fills a server almost; who was to be idle for an hour goes soon, down to where it is well again.
func TestIdleTimeoutsShrinkUnderPressure(t *testing.T) {
	const limit = 100
	srv, stop := startIn(t, Config{
		Addr: "127.0.0.1:0", Handler: &echo{}, MaxConnections: limit, PressureTimeout: 300 * time.Millisecond,
		Idle: idle.Config{ReadTimeout: time.Hour, Tick: 20 * time.Millisecond, ShedProtect: time.Hour},
	})
	defer stop()
	for range 97 {
		c, err := net.Dial("tcp", srv.Addr().String())
		require.NoError(t, err)
		defer c.Close()
	}
	require.Eventually(t, func() bool { return srv.Reaper().Stats().Reaped[idle.ReadIdle] > 0 }, 20*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return srv.Reaper().Connections() <= 85 }, 20*time.Second, 10*time.Millisecond)
}
