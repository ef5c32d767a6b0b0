package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/examples/internal/recipe"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
)

func TestMain(m *testing.M) { recipe.Main(m, main) }

// socket returns a path for a unix socket. Those of t.TempDir may be too long.
func socket(t testing.TB) string {
	dir, err := os.MkdirTemp("", "recipe")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "echo.sock")
}

// TestTimeout has a living and a silent client at each address.
func TestTimeout(t *testing.T) { fair.TryParallel(t, testTimeout) }

func testTimeout(t testing.TB) {
	path := socket(t)
	server, addr := recipe.Serve(t, "-addr", "unix://"+path, "-read-timeout", recipe.Timeout.String())
	server.Await("listening on 127.* and " + path)
	dial := func(to string) *recipe.Process {
		c := recipe.Client(t, "socat", "-", to)
		c.Say("hello")
		c.Await("hello")
		return c
	}
	silent := []*recipe.Process{dial("TCP:" + addr), dial("UNIX-CONNECT:" + path)}
	living := []*recipe.Process{dial("TCP:" + addr), dial("UNIX-CONNECT:" + path)}
	recipe.Live(living...)
	for _, network := range []string{"tcp", "unix"} {
		server.Await("a client of " + network + " closed: idle: connection reaped: read idle")
	}
	for i := range silent {
		require.Zero(t, silent[i].AwaitEnd())
		living[i].RequireAlive()
		living[i].Await("(beat\n){10}")
	}
	require.Equal(t, 2, server.Count("closed"))
}

// TestLimit has three clients of TCP and three of unix, and a limit of four.
func TestLimit(t *testing.T) {
	t.Parallel()
	path := socket(t)
	server, addr := recipe.Serve(t, "-addr", "unix://"+path, "-max-connections", "4", "-shed-protect", "100ms")
	for range 3 {
		for _, to := range []string{"TCP:" + addr, "UNIX-CONNECT:" + path} {
			c := recipe.Client(t, "socat", "-", to)
			c.Say("hello")
			c.Await("hello") // the server makes room within a second
			time.Sleep(recipe.Beat)
		}
	}
	recipe.Eventually(t, "two of six are closed", func() bool {
		return server.Count("closed: idle: connection reaped: shed") >= 2
	})
}
