package server

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/reap"
)

func TestTheScaleFollowsThePressureWithHysteresis(t *testing.T) {
	var scale timeoutScale
	for _, step := range []struct {
		pressure, want float64
	}{
		{0, 0}, {0.85, 0}, {0.90, 0.5}, {0.895, 0.5}, {0.889, 0.5}, {0.86, 0.3}, {0.87, 0.3}, {0.95, 1}, {2, 1}, {0.94, 1}, {0.92, 0.9}, {0.5, 0},
	} {
		before := scale
		changed := scale.follow(step.pressure)
		require.InDelta(t, step.want, float64(scale), 1e-9, "at %v", step.pressure)
		require.Equal(t, scale != before, changed)
	}
	require.False(t, scale.follow(0.1))
}

func TestPressureHasANameAndIsTheHighest(t *testing.T) {
	for i, name := range []string{"connections", "descriptors", "heap", "memory"} {
		parts := [4]float64{0.1, 0.2, 0.3, 0.4}
		parts[i] = 0.9
		p := Pressure{parts[0], parts[1], parts[2], parts[3]}
		require.Equal(t, name, p.name())
		require.InDelta(t, 0.9, p.Highest(), 0)
	}
}

func TestHeapPressure(t *testing.T) {
	set := &setup{}
	require.Zero(t, set.pressure(0, 0), "nothing is limited")
	debug.FreeOSMemory() // a collection, so that there is a figure
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	debug.SetMemoryLimit(1 << 20)
	require.Greater(t, set.pressure(0, 0).Heap, 0.1)
	debug.SetMemoryLimit(0)
	require.Zero(t, set.pressure(0, 0), "it is no limit")
	usage := filepath.Join(t.TempDir(), "usage")
	require.NoError(t, os.WriteFile(usage, []byte("500"), 0o600))
	set.groups = []memoryGroup{{limit: 1000, usage: usage[1:]}}
	require.Equal(t, Pressure{Memory: 0.5}, set.pressure(0, 0))
}

func TestDescriptorsAboveAGapArePressure(t *testing.T) {
	set := &setup{budget: budget{allowed: 1 << 20, inUse: 1 << 19}}
	require.InDelta(t, 0.5, set.pressure(0, 0).Descriptors, 0.01, "the lowest free descriptor alone says less")
	set.budget = budget{allowed: 64}
	require.Greater(t, set.pressure(0, 0).Descriptors, 0.05, "others have opened files since the start")
	set.budget.allowed = 1 << 20
	require.Less(t, set.pressure(0, 0).Descriptors, 0.1)
}

// TestIdleTimeoutsShrinkUnderPressure almost fills a server. Connections with a timeout of an hour
// are closed soon, until the pressure is low again.
func TestIdleTimeoutsShrinkUnderPressure(t *testing.T) {
	const limit = 100
	var log syncbuf.Buffer
	srv, stop := startIn(t, Config{
		PressureTimeout: 300 * time.Millisecond, Logger: logTo(&log),
		Idle: idle.Config{ReadTimeout: time.Hour, Tick: 20 * time.Millisecond, ShedProtect: time.Hour, MaxConnections: limit},
	})
	defer stop()
	for range 97 {
		dial(t, srv.Addr())
	}
	require.Eventually(t, func() bool { return srv.Reaper().Stats().Reaped[reap.ReadIdle] > 0 }, time.Minute, 10*time.Millisecond)
	isLogged := func() bool { return strings.Contains(log.String(), "pressure changes idle timeouts") }
	require.Eventually(t, func() bool { return srv.Reaper().Connections() <= 85 && isLogged() }, time.Minute, 10*time.Millisecond)
}

// take opens descriptors until none is left, or until one has the number last. The caller calls
// giveBack, once or more.
func take(t testing.TB, last int) (giveBack func()) {
	t.Helper()
	var taken []int
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		if taken = append(taken, fd); fd >= last {
			break
		}
	}
	return sync.OnceFunc(func() {
		for _, fd := range taken {
			_ = unix.Close(fd)
		}
	})
}

// TestSomethingElseMayTakeAllDescriptors takes all of them before a client connects. The client
// waits, and is served when there are descriptors again.
func TestSomethingElseMayTakeAllDescriptors(t *testing.T) {
	for name, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": "unix://" + filepath.Join(shortDir(t), "s")} {
		t.Run(name, func(t *testing.T) {
			var log syncbuf.Buffer
			srv, stop := startIn(t, Config{Addresses: []string{addr}, NumEventLoop: 2, Idle: idle.Config{ReadTimeout: time.Minute}, Logger: logTo(&log)})
			was := srv.Stats().MaxConnections
			live := visit(t, srv.Addr())
			spare, err := os.Open(os.DevNull)
			require.NoError(t, err)
			giveBack := take(t, math.MaxInt)
			defer giveBack()
			require.NoError(t, spare.Close()) // for the client
			client := dial(t, srv.Addr())
			require.Eventually(t, func() bool { return srv.Stats().Paused }, time.Minute, time.Millisecond)
			require.Eventually(t, func() bool { return srv.Stats().MaxConnections < was }, time.Minute, time.Millisecond, "connections make room")
			require.NoError(t, pingPong(live, 10*time.Second))
			giveBack()
			require.NoError(t, pingPong(client, 10*time.Second))
			require.Eventually(t, func() bool { return !srv.Stats().Paused }, time.Minute, time.Millisecond)
			require.Eventually(t, func() bool { return srv.Stats().MaxConnections == was }, time.Minute, time.Millisecond)
			require.NoError(t, pingPong(live, 10*time.Second))
			srv.acceptors.Load().following.Wait()
			stop()
			for _, once := range []string{"descriptors are short", "descriptors suffice again"} {
				require.Equal(t, 1, strings.Count(log.String(), once), "%s", &log)
			}
		})
	}
}

// TestIdleConnectionsMakeRoomForDescriptors takes most descriptors of a server.
func TestIdleConnectionsMakeRoomForDescriptors(t *testing.T) {
	srv, stop := startIn(t, Config{
		Addresses: []string{"unix://" + filepath.Join(shortDir(t), "s")},
		Idle:      idle.Config{ReadTimeout: time.Minute, ShedProtect: 100 * time.Millisecond},
	})
	defer stop()
	for range 100 {
		visit(t, srv.Addr())
	}
	time.Sleep(200 * time.Millisecond) // they are idle
	defer take(t, srv.setup.Load().budget.full())()
	visit(t, srv.Addr(), "it has one of the last descriptors")
	require.Eventually(t, func() bool { return srv.Reaper().Connections() < 100 }, time.Minute, time.Millisecond)
	require.NoError(t, srv.Update(func(cfg *idle.Config) { cfg.MaxConnections = 0 }))
	require.LessOrEqual(t, srv.Stats().MaxConnections, 101, "a reload does not end the shortage")
}
