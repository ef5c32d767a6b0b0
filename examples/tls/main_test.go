package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/examples/internal/recipe"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
)

func TestMain(m *testing.M) { recipe.Main(m, main) }

// TestEcho has a client that sends a line in each beat, and one that becomes silent.
func TestEcho(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		fair.RunParallel(t, version, func(t testing.TB) {
			server, addr := recipe.Serve(t, "-read-timeout", recipe.Timeout.String())
			dial := func() *recipe.Process {
				c := recipe.Client(t, "openssl", "s_client", "-quiet", version, "-connect", addr)
				c.Say("hello")
				c.Await("hello")
				return c
			}
			silent, living := dial(), dial()
			recipe.Live(living)
			server.Await("closed: idle: connection reaped: read idle")
			require.Zero(t, silent.AwaitEnd(), silent.Output())
			require.NotContains(t, silent.Output(), "unexpected eof", "it got the message that ends a connection")
			living.Say("long" + strings.Repeat("x", 3000)) // openssl reads lines of up to 4,095 bytes
			living.Await("long" + strings.Repeat("x", 3000))
			require.Equal(t, 1, server.Count("reaped"))
		})
	}
}

// TestHandshake has a client that sends nothing, one without TLS, and one that trusts no server.
func TestHandshake(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, "-handshake-timeout", recipe.Timeout.String())
	silent := recipe.Client(t, "socat", "-", "TCP:"+addr)
	server.Await("closed: idle: connection reaped: no handshake")
	silent.AwaitEnd()

	recipe.Client(t, "socat", "-", "TCP:"+addr).Say("GET / HTTP/1.1\r\n\r")
	server.Await("first record does not look like a TLS handshake")

	strict := recipe.Client(t, "openssl", "s_client", "-quiet", "-tls1_2", "-verify_return_error", "-connect", addr)
	require.NotZero(t, strict.AwaitEnd())
	server.Await(`tls: (unknown certificate authority|bad certificate)|remote error`)
}
