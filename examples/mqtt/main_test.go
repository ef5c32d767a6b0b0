package main

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/examples/internal/recipe"
	"github.com/idlewheel/idlewheel/idle"
)

func TestMain(m *testing.M) { recipe.Main(m, main) }

// TestKeepalive has a subscriber that pings every 5 s, the shortest keepalive of mosquitto_sub, and
// one that is stopped.
func TestKeepalive(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t)
	port := addr[strings.LastIndex(addr, ":")+1:]
	subscribe := func(id string) *recipe.Process {
		return recipe.Client(t, "mosquitto_sub", "-p", port, "-i", id, "-k", "5", "-t", "news", "-t", "sports")
	}
	living, stopped := subscribe("living"), subscribe("stopped")
	recipe.Eventually(t, "both subscribers get the news", func() bool {
		recipe.Run(t, "mosquitto_pub", "-p", port, "-t", "news", "-m", "hello")
		return strings.Contains(living.Output(), "hello") && strings.Contains(stopped.Output(), "hello")
	})
	require.NoError(t, stopped.Process.Signal(syscall.SIGSTOP))
	server.Await(`stopped closed: idle: connection reaped: read idle .*limit 7\.5s`)

	time.Sleep(2 * time.Second)
	recipe.Run(t, "mosquitto_pub", "-p", port, "-t", "sports", "-m", "goal")
	living.Await("goal")
	server.RequireNone("living closed")
}

// TestHandshake has a client that sends no CONNECT, and one that sends something else.
func TestHandshake(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, "-handshake-timeout", recipe.Timeout.String())
	silent := recipe.Client(t, "socat", "-", "TCP:"+addr)
	server.Await("closed: idle: connection reaped: no handshake")
	require.Zero(t, silent.AwaitEnd())

	wrong := recipe.Client(t, "socat", "-", "TCP:"+addr)
	wrong.Say("GET / HTTP/1.1\r\n\r")
	server.Await("CONNECT must be the first packet")
}

func TestAClientHasAFewTopics(t *testing.T) {
	var all topics
	for n := range maxTopics {
		require.NoError(t, all.add(strconv.Itoa(n), nil, idle.Conn{}))
	}
	require.NoError(t, all.add("0", nil, idle.Conn{}), "it has that one")
	require.Error(t, all.add("one more", nil, idle.Conn{}))
	all.remove(nil)
	require.Empty(t, all.subs)
	require.Empty(t, all.of)
}
