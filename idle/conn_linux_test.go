package idle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/engine"
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

const handshakeTimeout = time.Second

func init() {
	plays["handshake"] = play{cfg: Config{HandshakeTimeout: handshakeTimeout}, act: shakeHands}
}

// shakeHands is the server side of a handshake of two round trips.
func shakeHands(w *witness, c gnet.Conn, b []byte) {
	if bytes.Contains(b, []byte("hello")) {
		_, _ = c.Write([]byte("hello"))
	}
	if bytes.Contains(b, []byte("login")) {
		w.endHandshake(c)
		_, _ = c.Write([]byte("ready"))
	}
}

// A loginOutcome counts how handshakes have ended.
type loginOutcome struct{ ready, closed int }

// outcome counts the connections of an account, except those of the given peers.
func (a account) outcome(except map[string]bool) (o loginOutcome) {
	for _, tr := range a.Traces {
		switch {
		case except[tr.Peer]:
		case tr.Ready != 0:
			o.ready++
		case tr.Closed != 0:
			o.closed++
		}
	}
	return o
}

// dialNamed connects from an address that the server can tell apart, also over a unix socket.
func dialNamed(t testing.TB, addr net.Addr) net.Conn {
	t.Helper()
	c, err := dialFrom(addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// dialFrom is dialNamed without a test.
func dialFrom(addr net.Addr) (net.Conn, error) {
	var d net.Dialer
	if addr.Network() == "unix" {
		d.LocalAddr = &net.UnixAddr{Name: fmt.Sprintf("@idlewheel-%d", rand.Uint64()), Net: "unix"}
	}
	return d.Dial(addr.Network(), addr.String())
}

// TestAStopDuringAHandshakeClosesNoClient stops the server for one and a half timeouts. Its clients
// are connected by then. They send the first of two messages while the server is stopped, and the
// second after the server has answered, delayed as on a network path.
func TestAStopDuringAHandshakeClosesNoClient(t *testing.T) {
	t.Parallel()
	const n, mute = 200, 5
	const stop = handshakeTimeout * 3 / 2
	for _, network := range networks {
		for _, delay := range []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond} {
			fair.RunParallel(t, fmt.Sprintf("%s/%v", network.name, delay), func(t testing.TB) {
				server := startPlay(t, "handshake", network.addr(t))
				clients := make([]net.Conn, n)
				for i := range clients {
					clients[i] = dialNamed(t, server.addr)
				}
				guilty := map[string]bool{}
				for range mute {
					guilty[dialNamed(t, server.addr).LocalAddr().String()] = true
				}
				server.awaitOpen(n + mute)
				server.pause()
				var shaking sync.WaitGroup
				for _, c := range clients {
					shaking.Go(func() {
						time.Sleep(rand.N(stop))
						_, _ = c.Write([]byte("hello"))
						b := make([]byte, 16)
						if _, err := c.Read(b); err != nil {
							return
						}
						time.Sleep(delay)
						_, _ = c.Write([]byte("login"))
						_, _ = c.Read(b)
					})
				}
				server.resume(stop)
				shaking.Wait()
				a := server.await("all handshakes have ended", func(a account) bool {
					o := a.outcome(guilty)
					return o.ready+o.closed == n
				})
				o := a.outcome(guilty)
				t.Logf("%d of %d closed", o.closed, n)
				assert.Zero(t, o.closed, "clients were closed during their handshake")

				a = server.await("silent clients are closed", func(a account) bool {
					return len(a.reaped(func(tr trace) bool { return guilty[tr.Peer] })) == mute
				})
				for _, tr := range a.reaped(func(tr trace) bool { return guilty[tr.Peer] }) {
					assert.Equal(t, "no handshake", tr.Reason)
					assert.GreaterOrEqual(t, time.Duration(tr.Closed-tr.Opened), handshakeTimeout, "never early")
				}
				server.end()
			})
		}
	}
}

// TestALoginThatWaitsForABlockedLoopIsNotCutOff blocks the loop of the server by a handler, in
// OnTraffic or in a task, until the deadline of a handshake has passed. The logins arrive at once
// and wait unread. After a task, gnet runs the task of the Reaper before it reads.
func TestALoginThatWaitsForABlockedLoopIsNotCutOff(t *testing.T) {
	t.Parallel()
	const n = 50
	for _, network := range networks {
		for _, tc := range []struct {
			where string
			block time.Duration
		}{
			{"OnTraffic", 2 * handshakeTimeout},
			{"task", handshakeTimeout * 11 / 10},
			{"task", handshakeTimeout * 5 / 2},
		} {
			fair.RunParallel(t, fmt.Sprintf("%s/%s/%v", network.name, tc.where, tc.block), func(t testing.TB) {
				var reaper *Reaper
				blocked := make(chan struct{})
				ready := make(chan struct{}, n+1)
				e := newEcho()
				e.traffic = func(c gnet.Conn) gnet.Action {
					b, _ := c.Next(-1)
					switch {
					case bytes.Contains(b, []byte("login")):
						handle(reaper, c).Ready()
						ready <- struct{}{}
					case bytes.Contains(b, []byte("block")):
						block := func(context.Context) error {
							close(blocked)
							time.Sleep(tc.block)
							return nil
						}
						if tc.where == "OnTraffic" {
							_ = block(context.Background())
						} else {
							_ = c.EventLoop().Execute(context.Background(), gnet.RunnableFunc(block))
						}
					}
					return gnet.None
				}
				reaper = middleware(t, e, Config{HandshakeTimeout: handshakeTimeout})
				addr := engine.Serve(t, reaper, e.booted, network.addr(t), gnet.WithNumEventLoop(1))

				blocker := dial(t, addr)
				send(t, blocker, "login")
				<-ready
				clients := make([]net.Conn, n)
				for i := range clients {
					clients[i] = dial(t, addr)
				}
				mute := dial(t, addr)
				eventually(t, "all connections are open", func() bool { return reaper.Stats().Opened == n+2 })
				send(t, blocker, "block")
				<-blocked
				for _, c := range clients {
					send(t, c, "login")
				}
				_, err := io.Copy(io.Discard, mute) // this client never logs in
				require.NoError(t, err)
				eventually(t, "all handshakes have ended", func() bool { return len(ready)+len(e.reasons()) >= n+1 })
				cut := 0
				for _, err := range e.reasons() {
					if errors.Is(err, reap.NoHandshake) {
						cut++
					}
				}
				t.Logf("%d of %d closed", cut-1, n)
				assert.Equal(t, 1, cut, "only the mute client is closed, not the clients with unread logins")
				assert.Equal(t, n, len(ready))
			})
		}
	}
}
