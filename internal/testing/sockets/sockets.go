// Package sockets opens sockets for tests. A test that cannot have one fails, and all are closed
// when the test ends.
package sockets

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// Dial is net.Dial.
func Dial(t testing.TB, network, address string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
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
