package idle

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/reap"
)

func TestMaxAgeSaysGoodbyeAndGivesAGrace(t *testing.T) {
	t.Parallel()
	cfg := Config{MaxAge: 2 * limitOf, MaxAgeGrace: limitOf, Goodbye: func(_ gnet.Conn, reason *ReapError) []byte {
		return fmt.Appendf(nil, "bye: %v, in %v", reason.Reason, reason.Grace)
	}}
	s := newSite(t, cfg, nil)
	began := time.Now()
	c := dial(t, s.addr)
	sendEvery(t, c, limitOf/8) // activity does not put off the maximum age
	b := make([]byte, 64)
	n, err := c.Read(b)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint("bye: max age, in ", limitOf), string(b[:n]))
	require.GreaterOrEqual(t, time.Since(began), 2*limitOf*9/10)
	require.Empty(t, s.reasons())
	rest, _ := io.ReadAll(c)
	require.Empty(t, rest, "the goodbye is sent once")
	s.requireReaped(t, began, 2*limitOf*9/10+limitOf, reap.MaxAge)
}

// TestADrainSpreadsReconnects drains connections. Their goodbyes suggest times over the spread.
func TestADrainSpreadsReconnects(t *testing.T) {
	t.Parallel()
	const clients, spread = 64, time.Hour
	var after [4]atomic.Int64 // clients by quarter of the spread
	s := newSite(t, Config{ReadTimeout: time.Hour, ReconnectSpread: spread, Goodbye: func(_ gnet.Conn, reason *ReapError) []byte {
		if reason.Reason == reap.Drained && reason.Grace == 0 {
			after[4*reason.Reconnect/spread].Add(1)
		}
		return nil
	}}, nil)
	for range clients {
		dial(t, s.addr)
	}
	eventually(t, "all are open", func() bool { return s.reaper.Connections() == clients })
	require.NoError(t, s.reaper.Drain(0, limitOf))
	eventually(t, "all are drained", func() bool { return s.reaper.Stats().Reaped[reap.Drained] == clients })
	for quarter := range after {
		require.NotZero(t, after[quarter].Load(), "quarter %d", quarter)
	}
}

func TestOnlyADrainSuggestsWhenToReconnect(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf, ReconnectSpread: time.Hour}, nil)
	began := time.Now()
	dial(t, s.addr)
	require.Zero(t, s.requireReaped(t, began, limitOf, reap.ReadIdle).Reconnect)
}

func TestObserveOnlyClosesNothing(t *testing.T) {
	t.Parallel()
	var log syncbuf.Buffer
	s := newSite(t, Config{
		ReadTimeout: limitOf, FirstByteTimeout: 2 * limitOf, ObserveOnly: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Goodbye: func(gnet.Conn, *ReapError) []byte { return []byte("bye") },
	}, nil)
	c := dial(t, s.addr)
	eventually(t, "the verdict is counted", func() bool { return s.reaper.Stats().Observed[reap.ReadIdle] == 1 })
	time.Sleep(3 * limitOf)
	require.Empty(t, s.reasons())
	stats := s.reaper.Stats()
	require.EqualValues(t, 1, stats.Observed.Total(), "one verdict per connection")
	require.Zero(t, stats.Reaped.Total())
	flushLog(s.reaper)
	require.Equal(t, 1, strings.Count(log.String(), "would reap connection"))
	require.Contains(t, log.String(), `reason="read idle"`)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(limitOf/4)))
	_, err := c.Read(make([]byte, 8))
	require.ErrorContains(t, err, "timeout", "no goodbye is sent")
}

func TestGoodbyeOrReset(t *testing.T) {
	t.Parallel()
	bye := func(_ gnet.Conn, reason *ReapError) []byte { return []byte(reason.Error()) }
	s := newSite(t, Config{ReadTimeout: limitOf, Goodbye: bye}, nil)
	got, err := io.ReadAll(dial(t, s.addr))
	require.NoError(t, err, "the stream ends without a reset")
	require.Contains(t, string(got), "read idle for")

	s = newSite(t, Config{ReadTimeout: limitOf, Goodbye: bye, Reset: []Reason{reap.ReadIdle}}, nil)
	requireReset(t, dial(t, s.addr))

	s = newSite(t, Config{WriteStallTimeout: limitOf, Reset: []Reason{}}, func(s *site) { s.open = flood(16 << 20) })
	c := dial(t, s.addr)
	s.requireReaped(t, time.Now(), 0, reap.WriteStall)
	_, err = io.Copy(io.Discard, c)
	require.NoError(t, err, "the kernel still sends its output")
}

func TestGoodbyeMayClose(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf, Goodbye: func(c gnet.Conn, _ *ReapError) []byte {
		_ = c.EventLoop().Close(c)
		return []byte("bye")
	}}, nil)
	awaitClose(t, dial(t, s.addr))
	s.requireReaped(t, time.Now(), 0, reap.ReadIdle)
	time.Sleep(limitOf)
	require.Len(t, s.reasons(), 1)
}

func TestTCPKeepAliveSetsTheOptionsOfTheSocket(t *testing.T) {
	t.Parallel()
	options := make(chan [5]int, 1)
	s := newSite(t, Config{TCPKeepAlive: 40 * time.Second, ReadTimeout: time.Minute}, func(s *site) {
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
			var got [5]int
			for i, o := range []struct{ level, name int }{
				{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
				{unix.IPPROTO_TCP, unix.TCP_KEEPCNT}, {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
			} {
				got[i], _ = unix.GetsockoptInt(c.Fd(), o.level, o.name)
			}
			options <- got
			return nil, gnet.None
		}
	})
	dial(t, s.addr)
	require.Equal(t, [5]int{1, 20, 5, 4, 40_000}, <-options)
	_, err := Middleware(newEcho(), Config{TCPKeepAlive: time.Second})
	require.ErrorContains(t, err, "Config.TCPKeepAlive is 1s")
}

func TestNoGoodbyeBeforeAReset(t *testing.T) {
	t.Parallel()
	n := make(chan Reason, 9)
	s := newSite(t, Config{MaxAge: limitOf, MaxAgeGrace: limitOf, Reset: []Reason{reap.MaxAge}, Goodbye: func(_ gnet.Conn, r *ReapError) []byte {
		n <- r.Reason
		return nil
	}}, nil)
	dial(t, s.addr)
	s.reason(t, 0)
	require.Empty(t, n, "a connection that is reset gets no goodbye")
}
