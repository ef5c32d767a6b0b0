package idle

import (
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

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
