package machine

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

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
