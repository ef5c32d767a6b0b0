package idle

import (
	"bytes"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/reap"
)

func TestUpdateFromObservingToEnforcing(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf, ObserveOnly: true}, nil)
	dial(t, s.addr)
	eventually(t, "the verdict is counted", func() bool { return s.reaper.Stats().Observed[reap.ReadIdle] == 1 })
	s.update(t, Config{ReadTimeout: limitOf})
	eventually(t, "the silent connection is reaped", func() bool { return s.reaper.Connections() == 0 })
}

func TestUpdateWithoutMaxAgeDuringTheGrace(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: time.Hour, MaxAge: limitOf, MaxAgeGrace: time.Hour}, nil)
	dial(t, s.addr)
	eventually(t, "the goodbye is sent", func() bool {
		all, err := list(t.Context(), s.reaper, "age", 1)
		return err == nil && len(all) == 1 && all[0].State == "leaving"
	})
	s.update(t, Config{ReadTimeout: time.Hour})
	time.Sleep(2 * limitOf)
	require.Empty(t, s.reasons(), "max age is off, so the connection stays open")
}

func TestUpdateWithoutMinRateAlways(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: time.Hour, MinRate: MinRate{BytesPerSecond: 10, Window: limitOf, Always: true}}, nil)
	c := dial(t, s.addr)
	sendEvery(t, c, 10*time.Millisecond)
	time.Sleep(2 * limitOf)
	s.update(t, Config{ReadTimeout: time.Hour, MinRate: MinRate{BytesPerSecond: 1000000, Window: limitOf}})
	time.Sleep(5 * limitOf)
	require.Empty(t, s.reasons(), "no message is open")
}

func TestUpdateWithoutHeartbeatsAndBack(t *testing.T) {
	t.Parallel()
	h := pinging()
	h.MaxMissed = 1
	h.IsPong = func(c gnet.Conn) bool { b, _ := c.Peek(-1); return bytes.Contains(b, []byte("PONG")) }
	s := newSite(t, Config{ReadTimeout: time.Hour, Heartbeat: h}, nil)
	c := dial(t, s.addr)
	b := make([]byte, 64)
	_, err := c.Read(b) // PING
	require.NoError(t, err)
	s.update(t, Config{ReadTimeout: time.Hour})
	send(t, c, "PONG\n")
	time.Sleep(limitOf)
	s.update(t, Config{ReadTimeout: time.Hour, Heartbeat: h})
	answer(t, c, "PONG\n")
	time.Sleep(3 * limitOf)
	require.Empty(t, s.reasons(), "each ping was answered")
}

func TestUpdateOfTCPKeepAlive(t *testing.T) {
	t.Parallel()
	conns := make(chan gnet.Conn, 1)
	s := newSite(t, Config{ReadTimeout: time.Hour}, func(s *site) {
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) { conns <- c; return nil, gnet.None }
	})
	dial(t, s.addr)
	gc := <-conns
	for _, d := range []time.Duration{30 * time.Second, time.Minute, 0} {
		s.update(t, Config{ReadTimeout: time.Hour, TCPKeepAlive: d})
		on, err := unix.GetsockoptInt(gc.Fd(), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		require.NoError(t, err)
		require.Equal(t, d > 0, on == 1)
		ms, err := unix.GetsockoptInt(gc.Fd(), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		require.NoError(t, err)
		require.EqualValues(t, d.Milliseconds(), ms)
	}
}

// TestALoweredLimitCountsNoLateness lowers limits below the silence of connections. Their deadlines
// have then passed long ago, but the Reaper could not know them.
func TestALoweredLimitCountsNoLateness(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Reaper) error{
		"update": func(r *Reaper) error { return r.Update(to(Config{ReadTimeout: limitOf})) },
		"age":    func(r *Reaper) error { return r.Update(to(Config{ReadTimeout: time.Minute, MaxAge: limitOf})) },
		"scale":  func(r *Reaper) error { return r.ScaleTimeouts(1, limitOf) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, Config{ReadTimeout: time.Minute}, nil)
			dial(t, s.addr)
			time.Sleep(5 * limitOf)
			began := time.Now()
			require.NoError(t, change(s.reaper))
			s.reason(t, 0)
			took := time.Since(began)
			eventually(t, "the lateness is counted", func() bool { return s.reaper.Stats().Lateness.Count == 1 })
			require.LessOrEqual(t, s.reaper.Stats().Lateness.Max, took)
		})
	}
}
