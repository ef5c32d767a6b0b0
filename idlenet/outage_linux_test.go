package idlenet

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/testpeer"
	"github.com/idlewheel/idlewheel/reap"
)

// TestAnOutageOfTheNetworkEndsNoLivingConnection loses all packets for longer than the timeout.
// Afterwards silent connections end as before.
func TestAnOutageOfTheNetworkEndsNoLivingConnection(t *testing.T) {
	t.Parallel()
	const n, timeout = 200, 2 * time.Second
	wire := faultynet.New(t)
	inner := sockets.Listen(t, "tcp", wire.Host()+":0")
	e := serveEcho(t, inner, Config{ReadTimeout: timeout, Tick: 50 * time.Millisecond})
	addr := net.JoinHostPort(wire.Host(), strconv.Itoa(faultynet.PortOf(e.Addr())))
	var conns []net.Conn
	wire.Inside(t, func() {
		for range n {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			conns = append(conns, c)
		}
	})
	t.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
	})
	stop := testpeer.KeepSending(t, conns)
	time.Sleep(timeout)
	require.Empty(t, e.ended(), "before the outage")
	mend := wire.Lose(t, faultynet.ToServer, faultynet.ToClient)
	time.Sleep(timeout * 3 / 2)
	mend()
	eventually(t, "the hold is over", func() bool { s := e.Stats(); return s.Holds > 0 && !s.Holding })
	time.Sleep(timeout)
	require.Empty(t, e.ended(), "living connections have ended")
	stop()
	eventually(t, "silent connections end", func() bool { return len(e.ended()) == n })
	for _, err := range e.ended() {
		require.ErrorIs(t, err, reap.ReadIdle)
	}
}
