package idle

import (
	"context"
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

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
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
					was := found.Silences.Try(timeout)
					t.Logf("%v: %.0f predicted, %.0f cut", timeout, was.Cut, cut)
					assert.True(t, was.Known)
					assert.LessOrEqual(t, math.Abs(was.Cut-cut), max(cut/4, 2*math.Sqrt(cut)+1))
				}
			})
		})
	}
}

func TestInspectCountsByState(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: time.Minute, HandshakeTimeout: time.Minute}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			switch b, _ := c.Next(-1); string(b) {
			case "hold":
				handle(s.reaper, c).Hold()
			case "ready":
				handle(s.reaper, c).Ready()
			}
			return gnet.None
		}
	})
	for _, what := range []string{"hold", "ready", "ready", ""} {
		send(t, dial(t, s.addr), what)
	}
	want := map[string]int{"exempt": 0, "observed": 0, "leaving": 0, "stalled": 0}
	want["held"], want["open"], want["handshake"] = 1, 2, 1
	var got Inspection
	eventually(t, "all states are reached", func() bool {
		var err error
		got, err = countStates(t.Context(), s.reaper)
		require.NoError(t, err)
		return got.States["open"] == 2 && got.States["held"] == 1 && got.States["handshake"] == 1
	})
	require.Equal(t, want, got.States)
	require.Zero(t, got.Overdue)
}

// TestInspectCountsOverdueConnections judges nothing while deadlines pass, as on an overloaded
// loop.
func TestInspectCountsOverdueConnections(t *testing.T) {
	hand := new(handClock)
	own := Config{ReadTimeout: time.Second, Tick: 100 * time.Millisecond}
	cfg, err := own.check(0, nil)
	require.NoError(t, err)
	r := newReaper(&sink{}, cfg, hand.elapsed, realKernel)
	l := newLoop(r, &fakeEventLoop{}, 1)
	conns := make([]fakeConn, 5)
	for i := range conns {
		conns[i].fd = 8 + i
		r.add(l, &conns[i])
	}
	count := func() (open, overdue int) {
		i, err := r.watch.NewInspector(Query{States: true})
		require.NoError(t, err)
		l.Inspect(0, i)
		return i.Result().States["open"], i.Result().Overdue
	}
	open, overdue := count()
	require.Equal(t, []int{5, 0}, []int{open, overdue})
	hand.move(l.clock, mono.Time(3*time.Second))
	open, overdue = count()
	require.Equal(t, []int{5, 5}, []int{open, overdue})
}

func TestARingShowsWhenDeadlinesComeUp(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Second
	s := newSite(t, Config{ReadTimeout: timeout, Tick: 100 * time.Millisecond}, nil)
	for range 3 {
		dial(t, s.addr)
	}
	eventually(t, "all connections are open", func() bool { return s.reaper.Stats().Opened == 3 })
	rings, err := ringsOf(t.Context(), s.reaper, 20)
	require.NoError(t, err)
	require.Len(t, rings, 1)
	ring := rings[0]
	require.Equal(t, 3, ring.Connections)
	require.Equal(t, 1, ring.Loop)
	require.Zero(t, ring.Later)
	require.Len(t, ring.Sectors, 18, "three ticks per sector")
	require.Equal(t, 5400*time.Millisecond, ring.Turn)
	hand := float64(ring.Now%ring.Turn) / float64(ring.Turn)
	total := 0
	for i, n := range ring.Sectors {
		if total += n; n == 0 {
			continue
		}
		ahead := float64(i)/18 - hand
		if ahead < 0 {
			ahead++
		}
		at := time.Duration(ahead * float64(ring.Turn))
		require.InDelta(t, timeout.Seconds(), at.Seconds(), 2.5, "sector %d comes up in %v", i, at)
		require.LessOrEqual(t, at, timeout+300*time.Millisecond)
	}
	require.Equal(t, 3, total)

	rings, err = ringsOf(t.Context(), s.reaper, 1<<20)
	require.NoError(t, err)
	require.Len(t, rings[0].Sectors, 52, "one sector per tick, and two for rounding")
	_, err = s.reaper.Inspect(t.Context(), Query{Sectors: -1})
	require.ErrorContains(t, err, "Query.Sectors is -1")
}

func TestARingOmitsClosedConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: time.Minute}, nil)
	dial(t, s.addr)
	for range 50 {
		require.NoError(t, dial(t, s.addr).Close())
	}
	eventually(t, "one connection is left in the ring", func() bool {
		rings, err := ringsOf(t.Context(), s.reaper, 120)
		require.NoError(t, err)
		if len(rings) != 1 || rings[0].Connections != 1 || s.reaper.Stats().Closed != 50 {
			return false
		}
		total := rings[0].Later
		for _, n := range rings[0].Sectors {
			total += n
		}
		require.Equal(t, 1, total)
		return true
	})
}

// TestMessagesOfALoopThatGoesQuietAreCounted counts the states, as each scrape does. Nothing else
// happens on the loop for a long time.
func TestMessagesOfALoopThatGoesQuietAreCounted(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: time.Hour, Tick: time.Second}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			b, _ := c.Next(-1)
			_, _ = c.Write(b)
			return gnet.None
		}
	})
	c := dial(t, s.addr)
	for range 100 {
		send(t, c, "x")
		_, err := c.Read(make([]byte, 1))
		require.NoError(t, err)
	}
	_, err := countStates(t.Context(), s.reaper)
	require.NoError(t, err)
	require.EqualValues(t, 100, s.reaper.Stats().Reads)
}

// TestALoggerThatCallsTheReaperDoesNotHang has a logger that reads the counters and updates the
// Config of the Reaper that logs.
func TestALoggerThatCallsTheReaperDoesNotHang(t *testing.T) {
	var r *Reaper
	asked := make(chan struct{}, 10)
	log := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		r.Stats()
		_ = r.Update(to(Config{}))
		asked <- struct{}{}
		return len(b), nil
	}), nil))
	r = middleware(t, &sink{}, Config{ReadTimeout: time.Minute, Logger: log})
	done := make(chan error, 1)
	go func() { done <- r.Update(to(Config{ReadTimeout: time.Hour, Logger: log})) }()
	select {
	case err := <-done:
		require.NoError(t, err)
		<-asked
	case <-time.After(10 * time.Second):
		t.Fatal("Update has not returned within 10 s")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestConcurrentUpdatesAreAllKept changes the read timeout in one goroutine and the all timeout in
// another, many times.
func TestConcurrentUpdatesAreAllKept(t *testing.T) {
	r := middleware(t, &sink{}, Config{ReadTimeout: time.Minute, AllTimeout: time.Minute})
	var changing sync.WaitGroup
	const times = 500
	changing.Go(func() {
		for range times {
			assert.NoError(t, r.Update(func(cfg *Config) { cfg.ReadTimeout += time.Second }))
		}
	})
	changing.Go(func() {
		for range times {
			assert.NoError(t, r.Update(func(cfg *Config) { cfg.AllTimeout += time.Second }))
		}
	})
	changing.Wait()
	require.Equal(t, time.Minute+times*time.Second, r.Config().ReadTimeout)
	require.Equal(t, time.Minute+times*time.Second, r.Config().AllTimeout)
	require.EqualValues(t, 2*times, r.Stats().Updates)
	require.ErrorContains(t, r.Update(func(cfg *Config) { cfg.ReadTimeout = -1 }), "Config.ReadTimeout is -1ns")
}

func TestARingOfAnEmptyLoopStays(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf}, nil)
	dial(t, s.addr)
	s.reason(t, 0)
	eventually(t, "the reap is counted", func() bool {
		rings, err := ringsOf(t.Context(), s.reaper, 8)
		require.NoError(t, err)
		return len(rings) == 1 && rings[0].Connections == 0 && rings[0].Reaped[reap.ReadIdle] == 1
	})
}

func TestEndsOfConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: 10 * limitOf}, func(s *site) {
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

// TestInspectingChangesNothing compares everything that a loop stores about its connections.
func TestInspectingChangesNothing(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{
		ReadTimeout: 10 * time.Second, AllTimeout: time.Minute, MaxAge: time.Hour,
		Heartbeat: Heartbeat{Interval: time.Second, Ping: func(gnet.Conn) []byte { return nil }},
	})
	conns := s.open(3)
	s.pass(t, 3*time.Second)
	s.receive(conns[1])
	s.at = s.at.Add(2 * time.Second)
	l, _, _, _ := s.watched(conns[0])
	for range 3 {
		states, records := statesOf(l), recordsOf(l, conns)
		stats := l.Counters
		i, err := s.watch.NewInspector(Query{Limit: 2, States: true, By: "output"})
		require.NoError(t, err)
		l.Inspect(0, i)
		l.Ring(4)
		require.Len(t, i.Result().Connections, 2)
		require.Equal(t, states, statesOf(l))
		require.Equal(t, records, recordsOf(l, conns))
		require.Equal(t, stats, l.Counters)
		s.pass(t, time.Second)
	}
}

func statesOf(l *loop) (all []conn) {
	for id := range l.Len() {
		all = append(all, *l.At(id))
	}
	return all
}

func recordsOf(l *loop, conns []*scriptedConn) (all []conntable.Record) {
	for _, c := range conns {
		record, _ := l.table.Find(key(c))
		all = append(all, *record)
	}
	return all
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
	found, err := s.reaper.Inspect(t.Context(), Query{Closed: true})
	require.NoError(t, err)
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

func TestInspectOfABlockedLoopEndsWithItsContext(t *testing.T) {
	t.Parallel()
	unblock := make(chan struct{})
	s := newSite(t, Config{ReadTimeout: time.Minute}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action { _, _ = c.Discard(-1); <-unblock; return gnet.None }
	})
	send(t, dial(t, s.addr), "x")
	eventually(t, "the connection is open", func() bool { return s.reaper.Stats().Connections == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), limitOf)
	defer cancel()
	time.Sleep(limitOf / 4)
	_, err := list(ctx, s.reaper, "age", 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(unblock)
}
