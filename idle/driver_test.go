package idle

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/reap"
)

func TestStatsAndRingsCoverAllLoops(t *testing.T) {
	r := middleware(t, &sink{}, readOnly)
	var conns []*scriptedConn
	for loop := range 3 {
		el := newScriptedLoop()
		for range loop + 1 {
			c := newScriptedConn(el, len(conns))
			conns = append(conns, c)
			r.OnOpen(c)
		}
	}
	got := r.Stats()
	require.Equal(t, 6, got.Connections)
	require.Equal(t, 6, got.Entries)
	require.EqualValues(t, 6, got.Opened)
	for _, c := range conns { // rings would wait for loops with connections, which do not run here
		r.OnClose(c, nil)
	}
	got = r.Stats()
	require.Zero(t, got.Entries)
	require.EqualValues(t, 6, got.Closed)
	rings, err := ringsOf(t.Context(), r, 4)
	require.NoError(t, err)
	require.Len(t, rings, 3)
	for i, ring := range rings {
		require.Equal(t, i+1, ring.Loop, "the rings are in the order of the loops")
	}
}

// TestADriverWithoutConnectionsHasNoLag opens connections long after the Reaper was made, and long
// after the last close.
func TestADriverWithoutConnectionsHasNoLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := middleware(t, &sink{}, Config{ReadTimeout: time.Hour, Tick: 100 * time.Millisecond})
		c := newScriptedConn(newScriptedLoop(), 1)
		for range 2 {
			time.Sleep(time.Hour + 30*time.Millisecond)
			r.OnOpen(c)
			require.Zero(t, r.Stats().ClockDelay, "the driver has just started")
			time.Sleep(time.Second)
			require.Zero(t, r.Stats().ClockDelay, "the ticks were in time")
			r.OnClose(c, nil)
			require.Zero(t, r.Stats().ClockDelay)
		}
	})
}

// TestAKickWaitsForItsTask has a task that runs when the context ends. With a loop that spins the
// time of the test would stand still.
func TestAKickWaitsForItsTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, closes := newEcho(), make(chan struct{})
		e.closed = func(gnet.Conn, error) gnet.Action {
			<-closes
			return gnet.None
		}
		s := newHandSite(t, e, Config{ReadTimeout: time.Hour})
		id := handle(s.Reaper, s.open(1)[0]).ID()
		s.registry.Load().loops[0].root = stackRoot{} // the loop is another goroutine
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		kicked := make(chan error)
		go func() { kicked <- s.Kick(ctx, id) }()
		synctest.Wait()
		go func() { _ = s.el.run(t) }()
		time.Sleep(time.Minute)
		close(closes)
		require.NoError(t, <-kicked)
	})
}

// TestAReaperWithoutConnectionsHasNoDelay ends the engine in the middle of a mass expiry.
func TestAReaperWithoutConnectionsHasNoDelay(t *testing.T) {
	e := newEcho()
	s := newHandSite(t, e, Config{ReadTimeout: time.Second, OutageGrace: -1})
	e.closed = func(gnet.Conn, error) gnet.Action {
		s.at = s.at.Add(time.Millisecond)
		return gnet.None
	}
	conns := s.open(100)
	for range 11 {
		s.at = s.at.Add(100 * time.Millisecond)
		s.round()
	}
	require.NoError(t, s.el.run(t)) // closes a few
	require.NotZero(t, s.Stats().LoopDelay)
	for _, c := range conns {
		if s.has(c) {
			s.OnClose(c, nil)
		}
	}
	require.Zero(t, s.Stats().LoopDelay)
}

// An updatingConn calls a function when its descriptor is asked for.
type updatingConn struct {
	*scriptedConn
	first func()
}

func (c *updatingConn) Fd() int {
	if c.first != nil {
		c.first()
	}
	c.first = nil
	return c.scriptedConn.Fd()
}

// TestAnUpdateWhileTheFirstConnectionOpensIsFollowed has one after the loop has followed the
// settings.
func TestAnUpdateWhileTheFirstConnectionOpensIsFollowed(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Hour})
	s.OnOpen(&updatingConn{newScriptedConn(s.el, 1), func() {
		require.NoError(t, s.Update(func(c *Config) { c.OutputLimit.Hard = 1000 }))
	}})
	s.pass(t, time.Second)
	require.Equal(t, 1000, s.registry.Load().loops[0].outputs.hardLimit)
}

func TestAWarningIsLoggedOnceASecond(t *testing.T) {
	var out syncbuf.Buffer
	s := newHandSite(t, &sink{}, Config{ReadTimeout: time.Minute, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	s.at = mono.Time(time.Second)
	for range 5 {
		s.watch.Warn(&s.warnings.closing, "closing a connection", "reason", reap.ReadIdle)
		s.watch.Warn(&s.warnings.keepalive, "setting keepalive")
	}
	flushLog(s.Reaper)
	require.Equal(t, 1, strings.Count(out.String(), `level=WARN msg="closing a connection" reason="read idle"`), "%s", &out)
	require.Equal(t, 1, strings.Count(out.String(), `level=WARN msg="setting keepalive"`))
	s.at = s.at.Add(2 * time.Second)
	s.watch.Warn(&s.warnings.closing, "closing a connection")
	flushLog(s.Reaper)
	require.Equal(t, 2, strings.Count(out.String(), "closing a connection"))

	s.open(1)
	s.el.refusal = gneterrors.ErrEngineInShutdown
	s.pass(t, 2*time.Minute)
	s.el.refusal = nil
	s.pass(t, time.Second)
	flushLog(s.Reaper)
	require.Contains(t, out.String(), `msg="posting tasks to event loops" error="`+gneterrors.ErrEngineInShutdown.Error())
	require.EqualValues(t, 1, s.Stats().Reaped[reap.ReadIdle], "the task is posted again")

	s.at = s.at.Add(time.Minute)
	s.round()
	flushLog(s.Reaper)
	require.Contains(t, out.String(), "the server stood still")
}

// TestALoggerThatBlocksBlocksNoEventLoop reaps connections while the reader of the log is stalled.
func TestALoggerThatBlocksBlocksNoEventLoop(t *testing.T) {
	unread, stalled := io.Pipe()
	log := slog.New(slog.NewTextHandler(stalled, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Second, Logger: log})
	s.open(3)
	s.pass(t, 2*time.Second)
	require.EqualValues(t, 3, s.Stats().Reaped[reap.ReadIdle])
	require.NoError(t, s.Update(to(Config{ReadTimeout: time.Hour, Logger: log})))
	require.NoError(t, unread.Close())
	flushLog(s.Reaper)
}

// TestAShorterTimeoutReachesAllLoops gives it to a connection of one of two loops: the other looks
// at groups more often from then on.
func TestAShorterTimeoutReachesAllLoops(t *testing.T) {
	s := newHandSite(t, &sink{}, Config{ReadTimeout: 24 * time.Hour, Tick: 100 * time.Millisecond})
	other := &handLoop{scriptedLoop: newScriptedLoop(), r: s.Reaper}
	first := s.open(1)[0]
	s.OnOpen(newScriptedConn(other, 2))
	pass := func() (tasks int) {
		s.pass(t, s.watch.Clock.Tick())
		for ; len(other.tasks) > 0; tasks++ {
			require.NoError(t, other.run(t))
		}
		return tasks
	}
	pass()
	require.Zero(t, pass())
	require.NoError(t, handle(s.Reaper, first).SetTimeouts(Timeouts{Read: time.Second}))
	require.NotZero(t, pass())
}
