package recipe

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
)

// TestEngine tests an echo server on an engine that accepts by itself. It stops the server for 1.5
// timeouts: the living clients stay. Then one of them becomes silent, and one leaves.
func TestEngine(t *testing.T) { fair.TryParallel(t, testEngine) }

func testEngine(t testing.TB) {
	server, addr := Serve(t, "-read-timeout", Timeout.String())
	dial := func() *Process {
		c := Client(t, "socat", "-", "TCP:"+addr)
		c.Say("hello")
		c.Await("hello")
		return c
	}
	living, silent, leaving := dial(), dial(), dial()
	beat := func(clients ...*Process) {
		for _, c := range clients {
			c.Say("beat")
		}
		time.Sleep(Beat)
	}
	for stopped := time.Duration(0); stopped < Timeout*3/2; stopped += Beat {
		if stopped == 0 {
			require.NoError(t, server.Process.Signal(syscall.SIGSTOP))
		}
		beat(living, silent, leaving)
	}
	require.NoError(t, server.Process.Signal(syscall.SIGCONT))
	for range 2 {
		beat(living, silent, leaving)
	}
	server.RequireNone("closed")

	leaving.stop()
	began := time.Now()
	for server.Count("closed: idlenet: connection reaped: read idle") == 0 && time.Since(began) < patience {
		beat(living)
	}
	silent.AwaitEnd()
	living.RequireAlive()
	server.RequireNone("closed.*\n(.*\n)*.*closed") // the client that left is not reaped
}
