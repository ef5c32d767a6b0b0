package idlenet

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/testpeer"
	"github.com/idlewheel/idlewheel/reap"
)

// TestAHandOverBetweenPathsEndsNoLivingConnection has clients with Multipath TCP, as phones with
// WiFi and a mobile network are. The path by which they have connected is lost.
func TestAHandOverBetweenPathsEndsNoLivingConnection(t *testing.T) {
	t.Parallel()
	const living, dead, timeout = 100, 10, 1500 * time.Millisecond
	first := faultynet.New(t)
	first.AddPath(t)
	inner := sockets.Listen(t, "tcp", first.Host()+":0")
	e := serveEcho(t, inner, Config{ReadTimeout: timeout, WriteStallTimeout: timeout, Tick: 50 * time.Millisecond})
	var dialer net.Dialer
	dialer.SetMultipathTCP(true)
	var conns []net.Conn
	for range living + dead {
		conns = append(conns, first.DialBy(t, &dialer, faultynet.PortOf(inner.Addr())))
	}
	multipath, err := conns[0].(*net.TCPConn).MultipathTCP()
	require.NoError(t, err)
	require.True(t, multipath, "the kernel of this machine has no Multipath TCP")
	stop := testpeer.KeepSending(t, conns[:living])
	eventually(t, "silent connections end", func() bool { return len(e.ended()) == dead })

	first.Lose(t, faultynet.ToServer, faultynet.ToClient)
	time.Sleep(4 * timeout) // no verdict is held for longer than two
	require.Len(t, e.ended(), dead, "living connections have ended")
	stop()
	eventually(t, "silent connections end", func() bool { return len(e.ended()) == living+dead })
	for _, err := range e.ended() {
		require.ErrorIs(t, err, reap.ReadIdle)
	}
}
