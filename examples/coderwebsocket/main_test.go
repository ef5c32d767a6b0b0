package main

import (
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/examples/internal/recipe"
)

func TestMain(m *testing.M) { recipe.Main(m, main) }

// TestHeartbeat has clients that send nothing: one answers pings, one is stopped, and one does not
// answer.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, "-heartbeat", recipe.Timeout.String())
	dial := func() *recipe.Process {
		c := recipe.Client(t, "/usr/bin/python3", "-m", "websockets", "ws://"+addr)
		c.Await("Connected")
		return c
	}
	living, stopped := dial(), dial()
	require.NoError(t, stopped.Process.Signal(syscall.SIGSTOP))
	dead, _, _, err := ws.Dial(t.Context(), "ws://"+addr)
	require.NoError(t, err)
	defer dead.Close()
	recipe.Eventually(t, "two are closed", func() bool {
		return server.Count("closed: idlenet: connection reaped: heartbeat timeout") == 2
	})
	for range 2 {
		ping, _ := recipe.ReadFrame(t, dead)
		require.Equal(t, ws.OpPing, ping.OpCode)
	}
	_, err = io.ReadAll(dead)
	require.NoError(t, err)
	require.NoError(t, stopped.Process.Signal(syscall.SIGCONT))
	stopped.Await("Connection closed")

	time.Sleep(recipe.Timeout)
	living.Say("still here")
	living.Await("< still here")
	require.Equal(t, 2, server.Count("closed"))
}

// TestMaxAge has a client that works until its connection ends by age.
func TestMaxAge(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, "-max-age", recipe.Timeout.String())
	client := recipe.Client(t, "/usr/bin/python3", "-m", "websockets", "ws://"+addr)
	client.Await(`Connection closed: 1001 \(going away\) max age`)
	server.Await("closed: failed to get reader")
	require.Zero(t, server.Count("reaped"), "the server has closed it within the grace")
}

// TestNoRequest has a client that sends nothing.
func TestNoRequest(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, "-handshake-timeout", recipe.Timeout.String())
	recipe.Client(t, "socat", "-u", "TCP:"+addr, "-").AwaitEnd()
	server.Await("closed: idlenet: connection reaped: no handshake")
}
