// Package sockets opens sockets for tests. A test that cannot have one fails, and all are closed
// when the test ends.
package sockets

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is longer than any test waits for a connection.
const patience = 3 * time.Minute

// Dial is net.Dial. A test that would wait forever for its peer fails: the connection has a
// deadline, and no test ends after it.
func Dial(t testing.TB, network, address string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, address)
	require.NoError(t, err)
	deadline := time.Now().Add(patience)
	require.NoError(t, c.SetDeadline(deadline))
	t.Cleanup(func() {
		if _ = c.Close(); time.Now().After(deadline) {
			t.Errorf("the test was not over after %v: a peer did not do what was awaited", patience)
		}
	})
	return c
}

// Listen is net.Listen.
func Listen(t testing.TB, network, address string) net.Listener {
	t.Helper()
	ln, err := net.Listen(network, address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}
