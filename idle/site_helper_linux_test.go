package idle

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A site is a server on gnet with a Reaper. Most tests with real sockets use it.
type site struct {
	*echo
	reaper *Reaper
	addr   net.Addr
	events chan Event // of all connections; nil without an OnIdle
}

// newSite runs a server on one loop. setUp may set fields of the site before the Reaper is made.
func newSite(t testing.TB, cfg Config, setUp func(*site)) *site {
	t.Helper()
	s := &site{echo: newEcho()}
	s.traffic = func(c gnet.Conn) gnet.Action { _, _ = c.Discard(-1); return gnet.None }
	if setUp != nil {
		setUp(s)
	}
	if cfg.Tick == 0 {
		cfg.Tick = tickOf
	}
	if s.events != nil {
		cfg.OnIdle = func(_ gnet.Conn, ev Event) gnet.Action {
			s.events <- ev
			return gnet.None
		}
	}
	s.reaper = middleware(t, s.echo, cfg)
	s.addr = serve(t, s.reaper, s.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(1))
	return s
}

// reason waits for OnClose number n, counted from 0, and returns its error.
func (s *site) reason(t testing.TB, n int) error {
	t.Helper()
	eventually(t, "OnClose", func() bool { return len(s.reasons()) > n })
	return s.reasons()[n]
}

// update replaces the Config, and waits until it applies to all connections.
func (s *site) update(t testing.TB, cfg Config) {
	t.Helper()
	cfg.OnIdle = s.reaper.Config().OnIdle
	require.NoError(t, s.reaper.Update(to(cfg)))
	version := s.reaper.watch.Settings().Version
	eventually(t, "the new Config applies to all connections", func() bool {
		for _, l := range s.reaper.registry.Load().loops {
			if l.task.version.Load() != version {
				return false
			}
		}
		return true
	})
}

// requireReaped waits until a connection is closed. It checks the time and the reason, and that no
// other connection was closed.
func (s *site) requireReaped(t testing.TB, since time.Time, limit time.Duration, want error) *ReapError {
	t.Helper()
	err := s.reason(t, 0)
	took := time.Since(since)
	require.ErrorIs(t, err, want)
	require.GreaterOrEqual(t, took, limit, "never early")
	var reason *ReapError
	ok := errors.As(err, &reason)
	require.True(t, ok)
	eventually(t, "the reap is counted", func() bool { return s.reaper.Stats().Reaped[reason.Reason] == 1 })
	t.Logf("%v, %v after it began", err, took)
	return reason
}

// dialSmall connects with a small receive buffer.
func dialSmall(t testing.TB, addr net.Addr) net.Conn {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var set error
		return errors.Join(raw.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096)
		}), set)
	}}
	c, err := d.Dial("tcp", addr.String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}
