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

func TestOnlyPongsCount(t *testing.T) {
	t.Parallel()
	h := pinging()
	h.IsPong = func(c gnet.Conn) bool {
		b, _ := c.Peek(-1)
		return bytes.Contains(b, []byte("PONG"))
	}
	s := newSite(t, Config{Heartbeat: h}, nil)
	living, talking := dial(t, s.addr), dial(t, s.addr)
	pings := answer(t, living, "PONG\n")
	answer(t, talking, "what?\n")
	sendEvery(t, talking, limitOf/8)
	s.requireReaped(t, time.Now(), 0, reap.HeartbeatTimeout)
	time.Sleep(3 * limitOf)
	require.Len(t, s.reasons(), 1)
	require.GreaterOrEqual(t, pings.Load(), int32(3))
}

func TestConnAlive(t *testing.T) {
	t.Parallel()
	h := pinging()
	h.IsPong = func(gnet.Conn) bool { return false }
	s := newSite(t, Config{Heartbeat: h}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			_, _ = c.Discard(-1)
			handle(s.reaper, c).Alive()
			return gnet.None
		}
	})
	pings := answer(t, dial(t, s.addr), "x")
	eventually(t, "three pings", func() bool { return pings.Load() >= 3 })
	require.Empty(t, s.reasons())
}

// TestHeartbeatsOfAClient keeps a connection of a gnet.Client alive, and reaps the connection to a
// server that does not answer.
func TestHeartbeatsOfAClient(t *testing.T) {
	t.Parallel()
	for _, alive := range []bool{true, false} {
		ln := listenAt(t, "tcp://127.0.0.1:0")
		e := newEcho()
		e.traffic = func(c gnet.Conn) gnet.Action { _, _ = c.Discard(-1); return gnet.None }
		r := middleware(t, e, Config{Heartbeat: pinging(), Tick: tickOf})
		client, err := gnet.NewClient(r, gnet.WithLogger(quiet{}))
		require.NoError(t, err)
		require.NoError(t, client.Start())
		_, err = client.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		accepted, err := ln.Accept()
		require.NoError(t, err)
		if alive {
			pings := answer(t, accepted, "PONG\n")
			eventually(t, "three pings", func() bool { return pings.Load() >= 3 })
			require.Empty(t, e.reasons())
		} else {
			eventually(t, "the client closes the connection", func() bool { return len(e.reasons()) == 1 })
			require.ErrorIs(t, e.reasons()[0], reap.HeartbeatTimeout)
		}
		require.NoError(t, client.Stop())
		accepted.Close()
	}
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

// TestACloseForAnotherReasonMissesNoHeartbeat closes connections while a ping may still be
// answered.
func TestACloseForAnotherReasonMissesNoHeartbeat(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg  Config
		want error
	}{
		"idle": {Config{ReadTimeout: limitOf}, reap.ReadIdle},
		"old":  {Config{MaxAge: limitOf}, reap.MaxAge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.cfg.Heartbeat = Heartbeat{Interval: limitOf / 4, Retry: time.Minute, Ping: pinging().Ping}
			s := newSite(t, tc.cfg, nil)
			began := time.Now()
			dial(t, s.addr)
			s.requireReaped(t, began, limitOf, tc.want)
			got := s.reaper.Stats()
			require.EqualValues(t, 1, got.Pings)
			require.Zero(t, got.Missed)
		})
	}
}
