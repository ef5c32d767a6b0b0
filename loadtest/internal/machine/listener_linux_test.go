package machine

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

func TestListens(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp"} {
		ln := sockets.Listen(t, network, "localhost:0")
		port := uint16(ln.Addr().(*net.TCPAddr).Port)
		ok, err := Listens(os.Getpid(), port)
		require.NoError(t, err)
		require.True(t, ok)
		ok, err = Listens(os.Getppid(), port)
		if err == nil { // it may belong to another user
			require.False(t, ok)
		}
		require.NoError(t, ln.Close())
		ok, err = Listens(os.Getpid(), port)
		require.NoError(t, err)
		require.False(t, ok)
	}
	_, err := Listens(-1, 1)
	require.ErrorIs(t, err, os.ErrNotExist)
}
