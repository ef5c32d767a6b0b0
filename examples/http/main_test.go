package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/examples/internal/recipe"
)

func TestMain(m *testing.M) { recipe.Main(m, main) }

var fast = []string{
	"-read-timeout", recipe.Timeout.String(), "-handshake-timeout", recipe.Timeout.String(),
	"-min-rate-window", recipe.Timeout.String(), "-head-timeout", "1h",
}

func curl(t *testing.T, args ...string) string {
	t.Helper()
	return recipe.Run(t, "curl", append([]string{
		"--silent", "--show-error", "--fail", "--write-out", "%{num_connects} connects\n",
	}, args...)...)
}

// TestKeepAlive has a connection with a request in each 500 ms, one with 4 s between requests, and
// one with a request that takes long.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, fast...)
	url := "http://" + addr
	require.Equal(t, "done\n1 connects\nhello\n0 connects\n", curl(t, url+"/slow?for=4s", url))
	require.Equal(t, 5, strings.Count(curl(t, "--rate", "120/m", url+"/?[1-6]"), "\n0 connects"))
	server.RequireNone("closed")

	require.Equal(t, "hello\n1 connects\nhello\n1 connects\n", curl(t, "--rate", "15/m", url+"/?[1-2]"))
	server.Await("closed: idlenet: connection reaped: read idle")
	require.Equal(t, 1, server.Count("closed"))
}

// TestSlowClients has clients that send heads and bodies without end, and an honest one.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	for option, reason := range map[string]string{"-H": "no handshake", "-B": "below min rate"} {
		t.Run(option, func(t *testing.T) {
			t.Parallel()
			// A read timeout as long as the other limits could be the reason as well.
			server, addr := recipe.Serve(t, append(slices.Clone(fast), "-read-timeout", "1h")...)
			const clients = "20"
			attack := recipe.Client(t, "slowhttptest", option, "-c", clients, "-r", clients, "-i", "1", "-x", "8", "-l", "8", "-u", "http://"+addr+"/")
			out := curl(t, "--limit-rate", "100k", "--data-binary", "@main_test.go", "http://"+addr+"/")
			require.Contains(t, out, "bytes\n1 connects")
			recipe.Eventually(t, "all slow clients are closed", func() bool { return server.Count(reason) == 20 })
			attack.AwaitEnd()
			require.Equal(t, 20, server.Count("closed"))
		})
	}
}

// TestSources has more connections from one address than it may have.
func TestSources(t *testing.T) {
	t.Parallel()
	_, addr := recipe.Serve(t, "-max-per-source", "2")
	one, two := recipe.Client(t, "socat", "-", "TCP:"+addr), recipe.Client(t, "socat", "-", "TCP:"+addr)
	for _, c := range []*recipe.Process{one, two} {
		c.Say("GET / HTTP/1.1\r\nHost: localhost\r\n\r")
		c.Await("hello")
	}
	recipe.Client(t, "socat", "-u", "TCP:"+addr, "-").AwaitEnd()
	time.Sleep(recipe.Beat)
	one.RequireAlive()
	two.RequireAlive()
}
