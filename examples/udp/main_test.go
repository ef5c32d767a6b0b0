package main

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/examples/internal/recipe"
)

func TestMain(m *testing.M) { recipe.Main(m, main) }

// TestSessions has a client that sends packets, while the server is stopped for longer than the
// timeout too, and socat, which sends one.
func TestSessions(t *testing.T) {
	t.Parallel()
	const timeout = 500 * time.Millisecond
	server, addr := recipe.Serve(t, "-timeout", timeout.String())
	c, err := net.Dial("udp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	beat := func(times int) {
		for range times {
			_, err := c.Write([]byte("beat"))
			require.NoError(t, err)
			time.Sleep(timeout / 5)
		}
	}
	silent := recipe.Client(t, "socat", "-", "UDP:"+addr)
	silent.Say("hello")
	silent.Await("hello")
	beat(20)
	require.Equal(t, 1, server.Count("session ends"))
	require.NoError(t, server.Process.Signal(syscall.SIGSTOP))
	beat(8)
	require.NoError(t, server.Process.Signal(syscall.SIGCONT))
	beat(5)
	require.Equal(t, 1, server.Count("session ends"))
	recipe.Eventually(t, "the session ends", func() bool { return server.Count("session ends") == 2 })
	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	require.Zero(t, server.AwaitEnd())
	require.Equal(t, 1, server.Count("0 sessions were open"))
}
