package server

import (
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/syncbuf"
)

// sharing is the Config of a server that shares its port and drains quickly.
func sharing(addr string) Config {
	return Config{
		Addresses: []string{addr}, Handler: &echo{}, Idle: idle.Config{ReadTimeout: time.Minute}, NumEventLoop: 4, ReusePort: true,
		Drain: Drain{Spread: 50 * time.Millisecond, Timeout: 100 * time.Millisecond},
	}
}

// requireFound waits until the listeners of a server are known to its Pauser.
func requireFound(t *testing.T, s *Server) {
	t.Helper()
	h := s.engine.Load()
	require.Eventually(t, func() bool { return h.pauser.Find(false) }, 20*time.Second, time.Millisecond)
}

// TestServersThatShareAPortPauseTheirOwnListeners starts two servers at the same time, and pauses
// one of them.
func TestServersThatShareAPortPauseTheirOwnListeners(t *testing.T) {
	for range 10 {
		addrs, err := claimAll([]string{":0"}, false)
		require.NoError(t, err)
		port := strconv.Itoa(addrs[0].addr.(*net.TCPAddr).Port)
		type started struct {
			*Server
			stop func()
		}
		both := make(chan started, 2)
		var logs [2]syncbuf.Buffer
		for i, addr := range []string{"0.0.0.0:" + port, ":" + port} { // two spellings of one address
			go func() {
				cfg := sharing(addr)
				cfg.Logger = slog.New(slog.NewTextHandler(&logs[i], nil))
				s, stop := startIn(t, cfg)
				both <- started{s, stop}
			}()
		}
		first, second := <-both, <-both
		requireFound(t, first.Server)
		requireFound(t, second.Server)
		first.engine.Load().pauser.Pause("the test asks for it", func() {})
		require.Eventually(t, func() bool { return !first.Stats().Paused }, 10*time.Second, time.Millisecond)
		first.engine.Load().pauser.PauseForGood()
		first.stop()
		for range 4 {
			c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, 10*time.Second)
			require.NoError(t, err)
			require.NoError(t, pingPong(c, 10*time.Second))
			require.NoError(t, c.Close())
		}
		require.Zero(t, second.Stats().Pauses)
		second.engine.Load().pauser.Pause("the test asks for it", func() {})
		second.stop()
		for i := range logs {
			require.Contains(t, logs[i].String(), "listeners=4", "each has its own listeners and no others")
		}
	}
}

// TestARollingRestartLosesNoClient stops a server while another one listens on the same port. A new
// client is served there, or closed at once by the server that stops, and may retry.
func TestARollingRestartLosesNoClient(t *testing.T) {
	cfg := sharing("127.0.0.1:0")
	cfg.Drain = Drain{Spread: 100 * time.Millisecond, Timeout: 3 * time.Second}
	old, stopOld := startIn(t, cfg)
	addr := old.Addr().String()
	held, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer held.Close()
	require.NoError(t, pingPong(held, 10*time.Second))
	fresh, stopFresh := startIn(t, sharing(addr))
	requireFound(t, fresh)
	gone := make(chan struct{})
	go func() {
		stopOld()
		close(gone)
	}()
	require.Eventually(t, func() bool { return old.Stats().Draining }, 10*time.Second, time.Millisecond)
	served, closed := 0, 0
	for served < 20 {
		_, _ = held.Write([]byte("x")) // it is busy, so that the old server stays for a while
		c, err := net.DialTimeout("tcp", addr, 500*time.Millisecond)
		require.NoError(t, err, "no client has to wait")
		if pingPong(c, 10*time.Second) == nil {
			served++
		} else {
			closed++
		}
		c.Close()
		require.Less(t, closed, 200)
	}
	t.Logf("20 were served, %d were closed at once and retried", closed)
	<-gone
	stopFresh()
}
