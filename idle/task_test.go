package idle

import (
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/internal/watch"
)

// A handLoop is a scriptedLoop that closes its connections as gnet does. A handSite has one.
type handLoop struct {
	*scriptedLoop
	r        *Reaper
	closeErr error // the result of Close
}

func (l *handLoop) Close(c gnet.Conn) error {
	l.r.OnClose(c, nil)
	return l.closeErr
}

// A handSite is a Reaper on one loop. The test moves its clock and sets the answers of its kernel.
// Its driver does nothing by itself. Most tests without sockets use it.
type handSite struct {
	*Reaper
	at     mono.Time // now
	el     *handLoop
	asked  int           // number of questions to the kernel
	last   mono.Time     // time of the last question
	cost   time.Duration // of one reading of the clock
	took   time.Duration // from the kernel's answer to the return of the question
	answer verdict.Evidence
	opened int
}

func newHandSite(t *testing.T, h gnet.EventHandler, cfg Config) *handSite {
	t.Helper()
	checked, err := cfg.check(0, nil)
	require.NoError(t, err)
	s := &handSite{answer: verdict.Evidence{Queued: -1}}
	elapsed := func() mono.Time { s.at = s.at.Add(s.cost); return s.at }
	s.Reaper = newReaper(h, checked, elapsed, questions{
		ask: func(_ int, ev *verdict.Evidence) {
			s.asked++
			s.last = s.at
			*ev = s.answer
			s.at = s.at.Add(s.took)
		},
		holdsOutput: func(int) bool {
			s.asked++
			return s.answer.Queued > 0
		},
	})
	s.startDriver = func(d *driver) { close(d.done) }
	s.el = &handLoop{scriptedLoop: newScriptedLoop(), r: s.Reaper}
	return s
}

// open opens connections.
func (s *handSite) open(n int) (conns []*scriptedConn) {
	for range n {
		s.opened++
		c := newScriptedConn(s.el, s.opened)
		s.OnOpen(c)
		conns = append(conns, c)
	}
	return conns
}

// pass moves the clock in ticks for a time, and runs the tasks that are posted.
func (s *handSite) pass(t *testing.T, d time.Duration) {
	t.Helper()
	for end := s.at.Add(d); s.at < end; {
		s.at = s.at.Add(s.watch.Clock.Tick())
		s.round()
		for len(s.el.tasks) > 0 {
			require.NoError(t, s.el.run(t))
		}
	}
}

// block blocks the loop for a time in which the driver moves the clock, on another thread.
func (s *handSite) block(d time.Duration) {
	for end := s.at.Add(d); s.at < end; {
		s.at = s.at.Add(s.watch.Clock.Tick())
		s.watch.Clock.Move()
	}
}

// TestATaskIsBoundedInTime has a handler that takes a millisecond.
func TestATaskIsBoundedInTime(t *testing.T) {
	e := newEcho()
	s := newHandSite(t, e, Config{ReadTimeout: time.Second, Tick: 100 * time.Millisecond, OutageGrace: -1})
	e.closed = func(gnet.Conn, error) gnet.Action {
		s.at = s.at.Add(time.Millisecond)
		return gnet.None
	}
	s.open(100)
	for range 11 {
		s.at = s.at.Add(100 * time.Millisecond)
		s.round()
	}
	began := s.at
	require.NoError(t, s.el.run(t))
	require.Less(t, s.at.Sub(began), 2*time.Millisecond, "half a millisecond, and the handler that runs at its end")
	require.Len(t, s.watch.Wakes, 1, "the driver is asked for another task")
	require.Equal(t, s.at.Sub(mono.Time(time.Second)), s.Stats().LoopDelay)
	s.pass(t, time.Minute)
	require.Zero(t, s.Connections())
}

// TestALateMoveOfTheClockDoesNotDelayADeadline has moves of the clock that are all late by the same
// time. The deadline counts from such a move, and is as late after its tick.
func TestALateMoveOfTheClockDoesNotDelayADeadline(t *testing.T) {
	const tick, late = 100 * time.Millisecond, time.Millisecond
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Second, Tick: tick, OutageGrace: -1, Reset: []Reason{}})
	c := s.open(1)[0]
	s.at = mono.Time(late) // each move from here on is a millisecond late
	s.pass(t, 2*tick)
	s.receive(c) // between the moves at 201 ms and 301 ms
	s.pass(t, time.Second)
	require.Zero(t, s.Stats().Closed)
	s.pass(t, tick)
	require.EqualValues(t, 1, s.Stats().Closed, "at 1301 ms, not at 1401 ms")
}

// TestAWaitingTaskRevealsABlockedLoop counts the stall from the last time that the loop ran.
func TestAWaitingTaskRevealsABlockedLoop(t *testing.T) {
	const tick, blocked = 100 * time.Millisecond, 2 * time.Second
	for name, stopped := range map[string]bool{"the loop was blocked": false, "the process was stopped": true} {
		t.Run(name, func(t *testing.T) {
			s := newHandSite(t, &reader{}, Config{HandshakeTimeout: time.Hour, Tick: tick})
			c := s.open(1)[0]
			s.pass(t, time.Second)
			s.receive(c)
			seen := s.at
			s.pass(t, 5*tick) // the loop has nothing to do
			l, _, _, _ := s.watched(c)
			require.NoError(t, s.post(l))
			for end := s.at.Add(blocked); s.at < end; {
				s.at = s.at.Add(tick)
				if stopped {
					s.at = end
				}
				s.round()
			}
			require.NoError(t, s.el.run(t))
			if stopped {
				require.Len(t, l.Outages.At(s.at).Server, 1)
				require.Equal(t, l.Outages.At(s.at).Server, l.Outages.At(s.at).Loop, "an outage of the server counts for its loops")
				return
			}
			require.Equal(t, verdict.Outages{{From: seen, To: s.at, Length: s.at.Sub(seen)}}, l.Outages.At(s.at).Loop)
			require.Empty(t, l.Outages.At(s.at).Server)
		})
	}
}

// TestOnlyBusyConnectionsAreCounted counts connections that were open before the period and last
// heard in it.
func TestOnlyBusyConnectionsAreCounted(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Hour})
	early, busy := s.open(2), s.open(3)
	s.pass(t, time.Second)
	for _, c := range early { // heard before the period only
		s.receive(c)
	}
	s.pass(t, time.Second)
	from := s.at
	s.pass(t, s.watch.Clock.Tick())
	late := s.open(4)
	s.pass(t, time.Second)
	for _, c := range append(busy, late...) {
		s.receive(c)
	}
	s.pass(t, time.Second)
	l, _, _, _ := s.watched(busy[0])
	count := &outage.Count{Least: outage.MinBusy, From: from, To: s.at}
	enough := count.Enough()
	(&port{l, s.Reaper}).CountBusy(count)
	require.Equal(t, enough-len(busy), count.Enough())
	s.pass(t, time.Second)
	s.receive(early[0]) // the peers are not silent any more
	(&port{l, s.Reaper}).CountBusy(count)
	require.Equal(t, enough-len(busy), count.Enough())
}

// TestLoopsCountAtOnce has a silence of too few connections for a group. No connection is due, and
// the table has several parts.
func TestLoopsCountAtOnce(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Hour})
	conns, tick := s.open(40000)[40000-outage.MinBusy:], s.watch.Clock.Tick()
	for range 30 {
		s.pass(t, time.Minute)
		for _, c := range conns {
			s.receive(c)
		}
	}
	for silence := time.Duration(0); s.watch.Monitor.State().Count == nil; silence += tick {
		require.Less(t, silence, time.Hour/4)
		s.pass(t, tick)
	}
	for !s.watch.Monitor.State().Held() {
		s.round()
		require.NoError(t, s.el.run(t), "a task follows within the tick")
	}
	require.False(t, s.watch.Stats(&watch.Counters{}, false).Suspended, "the driver does not run")
}

// TestAnOutageOfFewBusyConnectionsIsNoticed stops the clients that send every four seconds. The
// others have no timeout, or the server ends its work on their requests meanwhile.
func TestAnOutageOfFewBusyConnectionsIsNoticed(t *testing.T) {
	for name, tc := range map[string]struct{ conns, busy, held, suspensions int }{
		"enough in all parts of the table": {40000, outage.MinBusy + 2, 0, 1},
		"too few":                          {20000, outage.MinBusy - 1, 0, 0},
		"requests end in the outage":       {40, 40, 30, 1},
	} {
		s := newHandSite(t, &reader{}, Config{ReadTimeout: 20 * time.Second, Tick: 100 * time.Millisecond})
		var busy []*scriptedConn
		for n, c := range s.open(tc.conns) {
			if n*tc.busy/tc.conns != (n+1)*tc.busy/tc.conns {
				busy = append(busy, c)
			} else {
				require.NoError(t, handle(s.Reaper, c).SetTimeouts(Timeouts{}))
			}
		}
		for n := range 600 {
			for i, c := range busy {
				if (n+i)%40 == 0 {
					s.receive(c)
				}
			}
			s.pass(t, 100*time.Millisecond)
		}
		for _, c := range busy[:tc.held] {
			handle(s.Reaper, c).Hold()
		}
		s.pass(t, 200*time.Millisecond)
		for _, c := range busy[:tc.held] {
			handle(s.Reaper, c).Release()
		}
		s.pass(t, 10*time.Second)
		require.EqualValues(t, tc.suspensions, s.Stats().Suspensions, name)
		s.pass(t, 15*time.Second)
		require.Equal(t, tc.suspensions == 0, s.Stats().Closed > 0, name)
	}
}

// TestConnectionsReapedInASilenceCount reaps half of the connections before enough were busy.
func TestConnectionsReapedInASilenceCount(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: 10 * time.Second, Tick: 100 * time.Millisecond})
	conns := s.open(20)
	for n := range 100 {
		s.receive(conns[n%20])
		s.pass(t, 400*time.Millisecond)
	}
	s.pass(t, 15*time.Second)
	require.EqualValues(t, 1, s.Stats().Suspensions)
	require.Less(t, s.Stats().Closed, uint64(outage.MinBusy))
}

// TestTheMonitorGetsTheLatestRead passes the loops in both orders.
func TestTheMonitorGetsTheLatestRead(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Hour})
	l, _, _, _ := s.watched(s.open(1)[0])
	other := newLoop(s.Reaper, &handLoop{scriptedLoop: newScriptedLoop(), r: s.Reaper}, 2)
	s.pass(t, time.Minute)
	l.heardAt.Store(100)
	other.heardAt.Store(50)
	for _, loops := range [][]*loop{{l, other}, {other, l}} {
		require.Equal(t, s.watch.Clock.Before(100, s.at), s.lastHeard(loops, s.at))
	}
}

// TestASlowHandlerBlocksTheLoop calls the handler in a task, at a deadline and before it, and in
// OnTraffic while no task waits.
func TestASlowHandlerBlocksTheLoop(t *testing.T) {
	const tick, blocked = 100 * time.Millisecond, time.Second
	for name, timeout := range map[string]time.Duration{"task": time.Second, "shed": 0, "OnTraffic": 0} {
		e, s := newEcho(), (*handSite)(nil)
		e.traffic = func(gnet.Conn) gnet.Action { s.block(blocked); return gnet.None }
		slow := func(gnet.Conn, *ReapError) []byte { s.block(blocked); return nil }
		s = newHandSite(t, e, Config{ReadTimeout: timeout, HandshakeTimeout: time.Hour, MaxConnections: 9, Tick: tick, Goodbye: slow})
		c := s.open(2)[1]
		handle(s.Reaper, c).Ready()
		handle(s.Reaper, c).Exempt(true)
		s.pass(t, 2*time.Second)
		switch name {
		case "shed":
			require.NoError(t, setMax(s.Reaper, 1))
			s.pass(t, tick)
		case "OnTraffic":
			s.receive(c)
		}
		l, _, _, _ := s.watched(c)
		stalls := l.Outages.At(s.at).Loop
		require.Len(t, stalls, 1, name)
		require.InDelta(t, blocked, stalls[0].Length, float64(tick))
	}
}
