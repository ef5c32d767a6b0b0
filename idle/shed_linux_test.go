package idle

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/reap"
)

// dialMany opens n connections one after the other.
func dialMany(t testing.TB, s *site, n int) (all []net.Conn) {
	t.Helper()
	opened := int(s.reaper.Stats().Opened)
	for i := range n {
		all = append(all, dial(t, s.addr))
		eventually(t, "the connection is open", func() bool { return int(s.reaper.Stats().Opened) > opened+i })
	}
	return all
}

// isClosed reports whether a connection is closed within a time.
func isClosed(t testing.TB, c net.Conn, within time.Duration) bool {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(within)))
	_, err := io.Copy(io.Discard, c)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// TestTheLongestIdleAreShedFirst fills the table with connections, some of them active, held or
// exempt, and then opens more.
func TestTheLongestIdleAreShedFirst(t *testing.T) {
	t.Parallel()
	const limit = 64 // shedding begins at 60
	s := newSite(t, Config{MaxConnections: limit, ShedProtect: limitOf / 2, KeepClosed: 100}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			switch b, _ := c.Next(-1); string(b) {
			case "hold":
				handle(s.reaper, c).Hold()
			case "exempt":
				handle(s.reaper, c).Exempt(true)
			}
			return gnet.None
		}
	})
	say := func(c net.Conn, what string) {
		send(t, c, what)
	}
	special := dialMany(t, s, 4)
	say(special[0], "hold")
	say(special[1], "exempt")
	sendEvery(t, special[2], limitOf/20)
	sendEvery(t, special[3], limitOf/20)
	var idle []net.Conn
	for range 7 {
		idle = append(idle, dialMany(t, s, 8)...)
		time.Sleep(2 * tickOf) // makes the order of idleness clear
	}
	time.Sleep(limitOf)
	require.Empty(t, s.reasons(), "there is room")
	newcomers := dialMany(t, s, 30)
	eventually(t, "one connection is shed for each new one", func() bool { return s.reaper.Connections() <= 60 })
	stats := s.reaper.Stats()
	t.Logf("%+v", stats)
	require.Zero(t, stats.Refused)
	require.GreaterOrEqual(t, stats.Reaped[reap.Shed], uint64(30))
	require.Less(t, stats.Reaped[reap.Shed], uint64(30+limit/8), "at most a batch more")
	for _, err := range s.reasons() {
		require.ErrorIs(t, err, reap.Shed)
	}
	for _, c := range append(special, newcomers...) {
		require.False(t, isClosed(t, c, time.Millisecond), "connections in use and new ones are not shed")
	}
	for i, c := range idle {
		if i < 24 {
			require.True(t, isClosed(t, c, time.Second), "idle connection %d", i+1)
		}
		if i >= 48 { // those in between may be shed with their batch
			require.False(t, isClosed(t, c, time.Millisecond), "idle connection %d", i+1)
		}
	}
}

func TestConnectionsInTheHandshakeAreShedFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{MaxConnections: 16, ShedProtect: limitOf / 4, HandshakeTimeout: time.Minute}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			b, _ := c.Next(-1)
			handle(s.reaper, c).Ready()
			_, _ = c.Write(b)
			return gnet.None
		}
	})
	older := dialMany(t, s, 8)
	for _, c := range older {
		send(t, c, "x")
		_, err := io.ReadFull(c, make([]byte, 1))
		require.NoError(t, err)
	}
	time.Sleep(4 * tickOf)
	younger := dialMany(t, s, 7)
	time.Sleep(limitOf)
	dialMany(t, s, 4)
	eventually(t, "four connections are shed", func() bool { return s.reaper.Connections() <= 15 })
	for _, c := range older {
		require.False(t, isClosed(t, c, time.Millisecond), "a ready connection is not shed, although it has been idle longer")
	}
	gone := 0
	for _, c := range younger {
		if isClosed(t, c, time.Millisecond) {
			gone++
		}
	}
	require.Equal(t, 4, gone)
}

// TestAConnectionWithoutRoomIsRefused fills the table with connections that are protected.
func TestAConnectionWithoutRoomIsRefused(t *testing.T) {
	t.Parallel()
	const limit = 16
	opens := make(chan gnet.Conn, 100)
	cfg := Config{MaxConnections: limit, ShedProtect: time.Hour, Refusal: func(gnet.Conn) []byte { return []byte("full") }}
	s := newSite(t, cfg, func(s *site) {
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) { opens <- c; return nil, gnet.None }
	})
	dialMany(t, s, limit)
	for range 5 {
		c := sockets.Dial(t, "tcp", s.addr.String())
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Equal(t, "full", string(got))
		c.Close()
	}
	stats := s.reaper.Stats()
	require.EqualValues(t, 5, stats.Refused)
	require.EqualValues(t, limit, stats.Opened)
	require.Len(t, opens, limit, "the handler gets no call for a refused connection")
	require.Empty(t, s.reasons())
	require.Equal(t, limit, s.reaper.Connections())

	_ = setMax(s.reaper, limit+2)
	dialMany(t, s, 2)
	require.Equal(t, limit+2, s.reaper.Config().MaxConnections)
}

// TestASilentSubscriberIsNotShed has a peer that receives messages and sends none.
func TestASilentSubscriberIsNotShed(t *testing.T) {
	t.Parallel()
	conns := make(chan gnet.Conn, 1)
	s := newSite(t, Config{MaxConnections: 8, ShedProtect: limitOf}, func(s *site) {
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
			select {
			case conns <- c:
			default:
			}
			return nil, gnet.None
		}
	})
	subscriber := dialMany(t, s, 1)[0]
	c := <-conns
	over := make(chan struct{})
	var pushing sync.WaitGroup
	pushing.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(limitOf / 20):
				_ = c.AsyncWrite([]byte("news"), nil)
			}
		}
	})
	dialMany(t, s, 6)
	time.Sleep(2 * limitOf)
	dialMany(t, s, 4)
	eventually(t, "other connections are shed", func() bool { return s.reaper.Stats().Reaped[reap.Shed] > 0 })
	close(over)
	pushing.Wait()
	require.False(t, isClosed(t, subscriber, time.Millisecond))
}
