package machine

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

func TestTargetSockets(t *testing.T) {
	for _, test := range []struct{ name, network, listen, dial string }{
		{"IPv4", "tcp4", "127.0.0.1:0", "127.0.0.1"},
		{"IPv6", "tcp6", "[::1]:0", "::1"},
		{"IPv4 at a listener for both", "tcp", ":0", "127.0.0.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ln, err := net.Listen(test.network, test.listen)
			if err != nil && test.network == "tcp6" {
				t.Skip("no IPv6 here: ", err)
			}
			require.NoError(t, err)
			defer ln.Close()
			port := ln.Addr().(*net.TCPAddr).Port
			wantSockets(t, port, 0, "a listener is no connection")

			n := needs.Connections(t, 600, 300, 2) // more than one chunk of an answer
			clients, servers := make([]net.Conn, n), make([]net.Conn, n)
			for i := range n {
				clients[i], err = net.Dial("tcp", (&net.TCPAddr{IP: net.ParseIP(test.dial), Port: port}).String())
				require.NoError(t, err)
				defer clients[i].Close()
				servers[i], err = ln.Accept()
				require.NoError(t, err)
				defer servers[i].Close()
			}
			wantSockets(t, port, n, "client ends do not count")
			for i := range 100 {
				clients[i].Close()
			}
			wantSockets(t, port, n, "the server holds its end after a close by the client")
			for i := range 30 {
				servers[i].Close()
			}
			wantSockets(t, port, n-30, "a close by both ends")
			for i := n - 30; i < n; i++ {
				servers[i].Close()
			}
			wantSockets(t, port, n-60, "a close by the server first")
		})
	}
}

func wantSockets(t *testing.T, port, want int, why string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		n, err := TargetSockets(port)
		require.NoError(c, err)
		require.Equal(c, want, n)
	}, 5*time.Second, time.Millisecond, why)
}

func TestListeningPorts(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp"} {
		ln := sockets.Listen(t, network, "localhost:0")
		port := ln.Addr().(*net.TCPAddr).Port
		ports, err := ListeningPorts(os.Getpid())
		require.NoError(t, err)
		require.Contains(t, ports, port)
		ports, _ = ListeningPorts(os.Getppid()) // it may belong to another user
		require.NotContains(t, ports, port)
		require.NoError(t, ln.Close())
		ports, err = ListeningPorts(os.Getpid())
		require.NoError(t, err)
		require.NotContains(t, ports, port)
	}
	_, err := ListeningPorts(-1)
	require.ErrorIs(t, err, os.ErrNotExist)
}
