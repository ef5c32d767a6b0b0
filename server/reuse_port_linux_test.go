package server

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

// sharing is the Config of a server that shares its port and drains quickly.
func sharing(addr string) Config {
	return Config{
		Addresses: []string{addr}, Handler: &echo{}, Idle: idle.Config{ReadTimeout: time.Minute}, NumEventLoop: 4, ReusePort: true,
		Drain: Drain{Spread: 50 * time.Millisecond, Timeout: 100 * time.Millisecond},
	}
}

// TestARollingRestartLosesNoClient stops a server while another one listens on the same port. A new
// client is served there, or refused at once and may retry.
func TestARollingRestartLosesNoClient(t *testing.T) {
	t.Parallel()
	cfg := sharing("127.0.0.1:0")
	cfg.Drain = Drain{Spread: 100 * time.Millisecond, Timeout: 3 * time.Second}
	old, stopOld := startIn(t, cfg)
	addr := old.Addr().String()
	held := sockets.Dial(t, "tcp", addr)
	require.NoError(t, pingPong(held, 10*time.Second))
	_, stopFresh := startIn(t, sharing(addr))
	gone := make(chan struct{})
	go func() {
		stopOld()
		close(gone)
	}()
	require.Eventually(t, func() bool { return old.Stats().Draining }, 10*time.Second, time.Millisecond)
	served, refused := 0, 0
	for served < 20 {
		_, _ = held.Write([]byte("x")) // it is busy, so that the old server stays for a while
		c, err := net.DialTimeout("tcp", addr, 500*time.Millisecond)
		if err == nil {
			err = pingPong(c, 10*time.Second)
			c.Close()
		}
		if err == nil {
			served++
			continue
		}
		// It was in the queue of the old server, which has closed it.
		var timeout net.Error
		require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "no client has to wait: %v", err)
		refused++
		require.Less(t, refused, 10)
	}
	t.Logf("20 were served, %d were refused at once and retried", refused)
	<-gone
	stopFresh()
}
