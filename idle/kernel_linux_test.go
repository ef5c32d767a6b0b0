package idle

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAskKernel(t *testing.T) {
	for _, network := range networks {
		t.Run(network.name, func(t *testing.T) {
			ln := listenAt(t, network.addr(t))
			peer := dial(t, ln.Addr())
			accepted, err := ln.Accept()
			require.NoError(t, err)
			defer accepted.Close()
			// File duplicates the descriptor; the socket is the same.
			f, err := accepted.(interface{ File() (*os.File, error) }).File()
			require.NoError(t, err)
			defer f.Close()
			fd := int(f.Fd())

			require.Equal(t, nothing, askKernel(fd).found)
			_, err = peer.Write([]byte("x"))
			require.NoError(t, err)
			eventually(t, "the byte arrives", func() bool { return askKernel(fd).found == unread })
			_, err = accepted.Read(make([]byte, 1))
			require.NoError(t, err)
			const silence = 200 * time.Millisecond
			time.Sleep(silence)
			ev := askKernel(fd)
			require.Equal(t, nothing, ev.found)
			require.Equal(t, network.name == "tcp", ev.counted, "only TCP tells when the last byte came")
			if ev.counted {
				require.GreaterOrEqual(t, ev.silent, silence-kernelStep)
				require.Less(t, ev.silent, silence+room)
			}
			require.NoError(t, peer.Close())
			eventually(t, "the end arrives", func() bool { return askKernel(fd).found == ended })
		})
	}
}
