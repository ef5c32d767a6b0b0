package idle

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/internal/testing/testpeer"
	"github.com/idlewheel/idlewheel/reap"
)

// TestSilencesPredictWhatAnotherTimeoutCutsOfRealPeers has peers of five shapes of traffic, 12.5
// times as fast as in their description, that measure their longest silence themselves.
func TestSilencesPredictWhatAnotherTimeoutCutsOfRealPeers(t *testing.T) {
	const peers, second, length = 250, 80 * time.Millisecond, 10 * time.Second
	t.Parallel()
	for name, next := range testpeer.Shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needs.Descriptors(t, 2*peers)
			fair.Try(t, func(t testing.TB) {
				s := newSite(t, Config{ReadTimeout: 60 * second, Tick: tickOf, OutageGrace: -1}, nil)
				var longest [peers]time.Duration
				var sending sync.WaitGroup
				for i := range peers {
					c, r := dial(t, s.addr), rand.New(rand.NewPCG(7, uint64(i)))
					x, wait := r.Float64(), 3*r.Float64()
					sending.Go(func() {
						last, until := time.Now(), time.Now().Add(length)
						for n := 0; time.Now().Before(until); n++ {
							time.Sleep(time.Duration(wait * float64(second)))
							now := time.Now()
							_, err := c.Write([]byte("x"))
							assert.NoError(t, err)
							longest[i], last, wait = max(longest[i], now.Sub(last)), now, next(r, x, n)
						}
					})
				}
				sending.Wait()
				found, err := s.reaper.Inspect(t.Context(), Query{Silences: true})
				require.NoError(t, err)
				for _, timeout := range []time.Duration{24 * second, 31 * second, 40 * second, 46 * second} {
					cut := 0.0
					for _, l := range longest {
						if l > timeout {
							cut++
						}
					}
					was, _, known := found.Silences.Try(timeout)
					t.Logf("%v: %d predicted, %.0f cut", timeout, was, cut)
					assert.True(t, known)
					assert.InDelta(t, cut, was, max(cut/4, 2*math.Sqrt(cut)+1))
				}
			})
		})
	}
}

func TestEndsOfConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: 10 * limitOf, OutageGrace: -1}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action { _, _ = c.Discard(-1); return gnet.Close }
	})
	require.NoError(t, dial(t, s.addr).Close())
	reset := dial(t, s.addr)
	require.NoError(t, reset.(*net.TCPConn).SetLinger(0))
	eventually(t, "the server has opened both", func() bool { return s.reaper.Stats().Opened == 2 })
	require.NoError(t, reset.Close())
	for range 3 {
		send(t, dial(t, s.addr), "x")
	}
	dial(t, s.addr) // silent until it is reaped
	eventually(t, "all connections are closed", func() bool { return s.reaper.Stats().Closed == 6 })
	got := s.reaper.Stats()
	t.Logf("%+v", got)
	require.EqualValues(t, 2, got.ClosedByPeer+got.Failed, "a FIN, and a reset that gnet may report as a FIN")
	require.GreaterOrEqual(t, got.ClosedByPeer, uint64(1))
	require.EqualValues(t, 3, got.ClosedByHandler)
	require.EqualValues(t, 1, got.Reaped[reap.ReadIdle])
	require.EqualValues(t, 1, got.Events[reap.ReadIdle])
	require.EqualValues(t, 1, got.Events.Total())
	dial(t, s.addr) // a server without connections tells no silences
	eventually(t, "each silence is counted by its end", func() bool {
		found, err := s.reaper.Inspect(t.Context(), Query{Silences: true})
		all := uint32(0)
		for _, n := range found.Silences.Ended {
			all += n
		}
		return err == nil && found.Silences.Dead == 1 && all == 2
	})
}

// TestInspectAndKickOnALoopReturnAtOnce calls them on the loop that they would wait for.
func TestInspectAndKickOnALoopReturnAtOnce(t *testing.T) {
	t.Parallel()
	errs := make(chan error, 2)
	s := newSite(t, Config{ReadTimeout: time.Minute}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			_, _ = c.Discard(-1)
			_, err := s.reaper.Inspect(t.Context(), Query{Limit: 1, States: true, Sectors: 4})
			errs <- err
			conn, _ := s.reaper.Conn(c)
			errs <- s.reaper.Kick(t.Context(), conn.ID())
			return gnet.None
		}
	})
	send(t, dial(t, s.addr), "x")
	require.ErrorIs(t, <-errs, ErrOnLoop)
	require.ErrorIs(t, <-errs, ErrOnLoop)
	require.Equal(t, 1, s.reaper.Connections())
}

// TestTheRemoteAddressOfAProxy shows the address that SetRemote has set until it is reset.
func TestTheRemoteAddressOfAProxy(t *testing.T) {
	t.Parallel()
	var log syncbuf.Buffer
	behind := &net.TCPAddr{IP: net.IPv4(203, 0, 113, 9), Port: 4711}
	cfg := Config{ReadTimeout: time.Minute, KeepClosed: 4, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	s := newSite(t, cfg, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			conn, _ := s.reaper.Conn(c)
			if b, _ := c.Next(-1); string(b) == "proxied" {
				conn.SetRemote(behind)
			} else {
				conn.SetRemote(nil)
			}
			_, _ = c.Write([]byte("ok"))
			return gnet.None
		}
	})
	c := dial(t, s.addr)
	for _, step := range []struct{ send, want string }{{"direct", c.LocalAddr().String()}, {"proxied", behind.String()}} {
		send(t, c, step.send)
		_, err := io.ReadFull(c, make([]byte, 2))
		require.NoError(t, err)
		found, err := s.reaper.Inspect(t.Context(), Query{Limit: 1})
		require.NoError(t, err)
		require.Equal(t, step.want, found.Connections[0].Remote.String())
	}
	found, err := s.reaper.Inspect(t.Context(), Query{Limit: 1})
	require.NoError(t, err)
	require.NoError(t, s.reaper.Kick(t.Context(), found.Connections[0].ID))
	found, err = s.reaper.Inspect(t.Context(), Query{Closed: true})
	require.NoError(t, err)
	require.Equal(t, behind, found.Closed[0].Remote)
	flushLog(s.reaper)
	require.Contains(t, log.String(), "remote="+behind.String())
}

func TestAnAbandonedInspectionChangesNothing(t *testing.T) {
	r := middleware(t, &sink{}, Config{ReadTimeout: time.Hour})
	el := newScriptedLoop()
	a, b := newScriptedConn(el, 1), newScriptedConn(el, 2)
	r.OnOpen(a)
	shown := make(chan []ConnInfo)
	go func() {
		all, err := list(t.Context(), r, "idle", 10)
		assert.NoError(t, err)
		shown <- all
	}()
	task := <-el.tasks
	r.OnClose(a, nil) // the loop has no connections any more, and gnet may have dropped the task
	all := <-shown
	require.Empty(t, all)
	r.OnOpen(b) // gnet has not dropped the task
	l := r.registry.Load().find(el)
	l.stop = errors.New("the task must not overwrite this")
	require.NoError(t, task.Run(t.Context()))
	require.Error(t, l.stop, "the inspection has ended before its task")
	r.OnClose(b, nil)
}

func TestInspectKickAndClosed(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: time.Minute, HandshakeTimeout: time.Minute, KeepClosed: 2}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			switch b, _ := c.Next(-1); string(b) {
			case "hold":
				handle(s.reaper, c).Hold()
			case "flood":
				flood(16 << 20)(c)
			case "ready":
				handle(s.reaper, c).Ready()
			case "exempt":
				handle(s.reaper, c).Exempt(true)
			}
			return gnet.None
		}
	})
	names := map[string]string{}
	for _, what := range []string{"nothing", "hold", "flood", "ready", "exempt"} {
		c := dial(t, s.addr)
		names[c.LocalAddr().String()] = what
		if what != "nothing" {
			send(t, c, what)
			eventually(t, "the message is read", func() bool {
				all, err := list(t.Context(), s.reaper, "age", 10)
				return err == nil && len(all) == len(names) && all[len(all)-1].Received > 0
			})
		}
		time.Sleep(limitOf / 4)
	}
	show := func(by string, limit int) (all []ConnInfo, shown []string) {
		all, err := list(t.Context(), s.reaper, by, limit)
		require.NoError(t, err)
		for _, i := range all {
			shown = append(shown, names[i.Remote.String()])
		}
		return all, shown
	}
	all, shown := show("age", 10)
	require.Equal(t, []string{"nothing", "hold", "flood", "ready", "exempt"}, shown)
	for i, want := range []string{"handshake", "held", "handshake", "open", "exempt"} {
		require.Equal(t, want, all[i].State)
	}
	require.EqualValues(t, 4, all[1].Received)
	require.Greater(t, all[0].Age, limitOf)
	require.Greater(t, all[0].ReadIdle, limitOf)
	require.NotZero(t, all[0].Due)
	_, shown = show("idle", 2)
	require.Equal(t, []string{"nothing", "hold"}, shown)
	all, shown = show("output", 1)
	require.Equal(t, []string{"flood"}, shown)
	require.Greater(t, all[0].Output, 1<<20)
	_, shown = show("output", 0)
	require.Empty(t, shown)
	_, err := list(t.Context(), s.reaper, "name", 1)
	require.ErrorContains(t, err, `Query.By is "name"`)

	all, _ = show("age", 10)
	for i, info := range all[:3] {
		id := info.ID
		require.NoError(t, s.reaper.Kick(t.Context(), id))
		require.ErrorIs(t, s.reason(t, i), reap.Kicked)
		require.ErrorIs(t, s.reaper.Kick(t.Context(), id), ErrNotWatched)
	}
	found, err := s.reaper.Inspect(t.Context(), Query{Closed: true, Sectors: 4})
	require.NoError(t, err)
	require.Equal(t, 2, found.Rings[0].Connections)
	closed := found.Closed
	require.Len(t, closed, 2, "the latest two are kept")
	for i, c := range closed {
		require.Equal(t, all[2-i].Remote.String(), c.Remote.String())
		require.Equal(t, reap.Kicked, c.Err.Reason)
		require.Greater(t, c.Age, limitOf/4)
	}
	for _, id := range []ConnID{"", "1-2", "1-2-x", "1-2-3-4", "1-2--3", "1-2-4294967296"} {
		require.ErrorIs(t, s.reaper.Kick(t.Context(), id), ErrBadConnID, "%q", id)
	}
	for _, id := range []ConnID{"9-9-9", "1-1048576-9"} {
		require.ErrorIs(t, s.reaper.Kick(t.Context(), id), ErrNotWatched, "%q", id)
	}
}
