package idle

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/reap"
)

func TestHeldConnectionsAreNotIdle(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf, MaxAge: time.Minute}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			switch b, _ := c.Next(-1); string(b) {
			case "request":
				for range 300 { // more than a state has room for
					handle(s.reaper, c).Hold()
				}
				el := c.EventLoop()
				time.AfterFunc(4*limitOf, func() {
					_ = el.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
						for range 300 {
							handle(s.reaper, c).Release()
						}
						handle(s.reaper, c).Release() // one too many
						return nil
					}))
				})
			}
			return gnet.None
		}
	})
	c := dial(t, s.addr)
	began := time.Now()
	send(t, c, "request")
	awaitClose(t, c)
	s.requireReaped(t, began, 5*limitOf, reap.ReadIdle)
}

func TestExemptConnectionsAreNotJudged(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf, MaxAge: 2 * limitOf}, func(s *site) {
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
			handle(s.reaper, c).Exempt(true)
			return nil, gnet.None
		}
		s.traffic = func(c gnet.Conn) gnet.Action {
			_, _ = c.Discard(-1)
			handle(s.reaper, c).Exempt(false)
			return gnet.None
		}
	})
	c := dial(t, s.addr)
	time.Sleep(4 * limitOf)
	require.Empty(t, s.reasons())
	send(t, c, "x")
	s.requireReaped(t, time.Now(), 0, reap.MaxAge)
}

func TestTimeoutsOfOneConnection(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		s := newSite(t, Config{ReadTimeout: 2 * limitOf}, func(s *site) {
			s.traffic = func(c gnet.Conn) gnet.Action {
				var err error
				switch b, _ := c.Next(-1); string(b) {
				case "short":
					err = handle(s.reaper, c).SetTimeouts(Timeouts{Read: limitOf / 2})
				case "long": // longer than the clock remembers so far
					err = handle(s.reaper, c).SetTimeouts(Timeouts{Read: 20 * limitOf})
				case "none":
					err = handle(s.reaper, c).SetTimeouts(Timeouts{})
				case "bad":
					if handle(s.reaper, c).SetTimeouts(Timeouts{Read: -1}) == nil {
						err = errors.New("a negative timeout is accepted")
					}
				}
				assert.NoError(t, err)
				return gnet.None
			}
		})
		began := time.Now()
		closed := map[string]chan time.Duration{}
		for _, what := range []string{"short", "bad", "long", "none"} {
			c := dial(t, s.addr)
			send(t, c, what)
			done := make(chan time.Duration, 1)
			closed[what] = done
			go func() {
				_, _ = io.Copy(io.Discard, c)
				done <- time.Since(began)
			}()
		}
		short := <-closed["short"]
		require.GreaterOrEqual(t, short, limitOf/2)
		bad := <-closed["bad"]
		require.GreaterOrEqual(t, bad, 2*limitOf, "a rejected timeout leaves that of the Config")
		require.Less(t, short, bad)
		long := <-closed["long"]
		require.GreaterOrEqual(t, long, 20*limitOf)
		require.Less(t, long, 20*limitOf+room)
		require.Len(t, s.reasons(), 3, "a connection without timeouts stays open")
	})
}

func TestUpdateReachesLiveConnections(t *testing.T) {
	t.Parallel()
	n := needs.Connections(t, 500, 100, 2)
	s := newSite(t, Config{ReadTimeout: time.Hour}, nil)
	require.ErrorContains(t, s.reaper.Update(to(Config{ReadTimeout: -1})), "Config.ReadTimeout is -1ns")
	require.ErrorContains(t, s.reaper.Update(to(Config{ReadTimeout: time.Minute, Tick: time.Second})), "until the next start")
	require.Equal(t, time.Hour, s.reaper.Config().ReadTimeout, "an error changes nothing")
	for range n {
		dial(t, s.addr)
	}
	eventually(t, "all connections are open", func() bool { return s.reaper.Stats().Connections == n })
	time.Sleep(limitOf)
	began := time.Now()
	require.NoError(t, s.reaper.Update(to(Config{ReadTimeout: 2 * limitOf})))
	eventually(t, "all connections are reaped", func() bool { return s.reaper.Stats().Reaped[reap.ReadIdle] == uint64(n) })
	t.Logf("reaped %v after Update", time.Since(began))
	require.NoError(t, s.reaper.Update(to(Config{ReadTimeout: 20 * limitOf})))
	dial(t, s.addr)
	time.Sleep(4 * limitOf)
	require.Equal(t, 1, s.reaper.Stats().Connections, "a longer timeout applies to new connections at once")
	require.NoError(t, s.reaper.Update(to(Config{ReadTimeout: limitOf})))
	eventually(t, "the connection is reaped", func() bool { return s.reaper.Stats().Connections == 0 })
}

func TestAHandleOfAClosedConnectionDoesNothing(t *testing.T) {
	r := middleware(t, newEcho(), Config{ReadTimeout: time.Minute, MinRate: MinRate{BytesPerSecond: 1}})
	el := newScriptedLoop()
	useAll := func(conn Conn) {
		conn.Ready()
		conn.Hold()
		conn.Release()
		conn.Touch()
		conn.Exempt(true)
		conn.Alive()
		conn.BeginMessage()
		conn.EndMessage()
		conn.SetRemote(&net.TCPAddr{})
	}
	for _, loopKnown := range []bool{false, true} {
		c := newScriptedConn(el, 1)
		conn, ok := r.Conn(c)
		require.False(t, ok, "%v", loopKnown)
		useAll(conn)
		require.ErrorIs(t, conn.SetTimeouts(Timeouts{}), ErrNotWatched)
		r.OnOpen(c)
		conn, ok = r.Conn(&shellConn{c, c})
		require.True(t, ok)
		useAll(conn)
		require.NoError(t, conn.SetTimeouts(Timeouts{Read: time.Second}))
		require.NotZero(t, conn.ID())
		r.OnClose(c, nil)

		next := newScriptedConn(el, 1) // reuses the descriptor and the state
		r.OnOpen(next)
		l := r.registry.Load().find(el)
		_, id := l.table.Find(key(next))
		before := *l.At(id)
		useAll(conn)
		require.Equal(t, before, *l.At(id), "the handle does not reach the next connection")
		require.Empty(t, l.Remotes)
		require.Empty(t, l.layers)
		require.ErrorIs(t, conn.SetTimeouts(Timeouts{}), ErrNotWatched)
		require.Zero(t, conn.ID())
		r.OnClose(next, nil)
	}
}

// TestLimitsOfOneConnection gives the first connection each limit, and the others none of them.
func TestLimitsOfOneConnection(t *testing.T) {
	t.Parallel()
	for want, limits := range map[Reason]ConnLimits{
		reap.ReadIdle:     {ReadTimeout: limitOf},
		reap.NoHandshake:  {HandshakeTimeout: limitOf},
		reap.BelowMinRate: {MinRate: MinRate{BytesPerSecond: 1000, Window: limitOf, Always: true}},
		reap.MaxAge:       {MaxAge: limitOf},
		reap.WriteStall:   {WriteStallTimeout: limitOf},
	} {
		t.Run(want.Error(), func(t *testing.T) {
			t.Parallel()
			first, errs := true, make(chan error, 2)
			s := newSite(t, Config{ReadTimeout: time.Hour, Tick: 20 * time.Millisecond}, func(s *site) {
				s.traffic = func(c gnet.Conn) gnet.Action {
					_, _ = c.Discard(-1)
					conn, _ := s.reaper.Conn(c)
					if !first {
						errs <- conn.SetLimits(ConnLimits{MinRate: MinRate{Window: limitOf}})
						return gnet.None
					}
					first = false
					if want == reap.WriteStall {
						_, _ = c.Write(make([]byte, 16<<20))
					}
					errs <- conn.SetLimits(limits)
					return gnet.None
				}
			})
			send(t, dial(t, s.addr), "x")
			require.NoError(t, <-errs)
			send(t, dial(t, s.addr), "x")
			require.ErrorContains(t, <-errs, "idle: MinRate.BytesPerSecond of a connection is 0")
			require.ErrorIs(t, s.reason(t, 0), want)
			require.Equal(t, 1, s.reaper.Connections())
		})
	}
}
