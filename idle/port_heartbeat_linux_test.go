package idle

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/reap"
)

// answer reads from a connection and answers each PING until the connection is closed.
func answer(t testing.TB, c net.Conn, with string) (pings *atomic.Int32) {
	pings = new(atomic.Int32)
	var answering sync.WaitGroup
	answering.Go(func() {
		b := make([]byte, 64)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			pings.Add(int32(bytes.Count(b[:n], []byte("PING\n"))))
			if _, err := c.Write([]byte(with)); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() { c.Close(); answering.Wait() })
	return pings
}

func TestHeartbeatsCloseAPeerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{Heartbeat: pinging()}, nil)
	began := time.Now()
	living, talking, silent := dial(t, s.addr), dial(t, s.addr), dial(t, s.addr)
	pings := answer(t, living, "PONG\n")
	sendEvery(t, talking, limitOf/8)
	got, err := io.ReadAll(silent)
	require.NoError(t, err)
	require.Equal(t, "PING\nPING\n", string(got))
	reason := s.requireReaped(t, began, 2*limitOf, reap.HeartbeatTimeout)
	require.Equal(t, 2*limitOf, reason.Limit)
	time.Sleep(4 * limitOf)
	require.Len(t, s.reasons(), 1)
	require.GreaterOrEqual(t, pings.Load(), int32(3))
	require.NoError(t, talking.SetReadDeadline(time.Now().Add(limitOf/4)))
	_, err = talking.Read(make([]byte, 8))
	require.Error(t, err, "a peer that sends gets no ping")
}

func TestPingMayClose(t *testing.T) {
	t.Parallel()
	h := pinging()
	h.Ping = func(c gnet.Conn) []byte {
		_ = c.EventLoop().Close(c)
		return []byte("PING\n")
	}
	s := newSite(t, Config{Heartbeat: h}, nil)
	awaitClose(t, dial(t, s.addr))
	require.Equal(t, []error{nil}, s.reasons())
}

func TestAPingBehindOutputIsNotMissed(t *testing.T) {
	t.Parallel()
	h := pinging()
	s := newSite(t, Config{Heartbeat: h}, func(s *site) { s.open = flood(32 << 20) })
	c := dialSmall(t, s.addr)
	got := 0
	stop := time.Now().Add(4 * time.Second)
	b := make([]byte, 8<<10)
	for time.Now().Before(stop) {
		n, err := c.Read(b)
		got += n
		if err != nil {
			break
		}
		if bytes.Contains(b[:n], []byte("PING")) {
			_, _ = c.Write([]byte("PONG\n"))
		}
		time.Sleep(5 * time.Millisecond)
	}
	require.Empty(t, s.reasons(), "the peer has read %d bytes and acknowledges them, but the ping is behind more output", got)
}

func TestIsPongMayClose(t *testing.T) {
	t.Parallel()
	h := pinging()
	var closed atomic.Bool
	h.IsPong = func(c gnet.Conn) bool { _ = c.EventLoop().Close(c); return true }
	after := make(chan bool, 9)
	s := newSite(t, Config{Heartbeat: h}, func(s *site) {
		s.closed = func(gnet.Conn, error) gnet.Action { closed.Store(true); return gnet.None }
		s.traffic = func(c gnet.Conn) gnet.Action { after <- closed.Load(); return gnet.None }
	})
	c := dial(t, s.addr)
	_, _ = c.Write([]byte("x"))
	select {
	case a := <-after:
		require.False(t, a, "OnTraffic after OnClose")
	case <-time.After(time.Second):
	}
}
