package idle

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

func TestConnectionsWithoutOutputNeedNoQuestions(t *testing.T) {
	const n, stall = 100, 20 * time.Second
	for name, tc := range map[string]struct {
		cfg  Config
		want int // questions in an hour
	}{
		"hard limit":  {Config{OutputLimit: OutputLimit{Hard: 1 << 20}}, 0},
		"soft limit":  {Config{OutputLimit: OutputLimit{Soft: 1 << 20, SoftFor: 2 * time.Second}}, 0},
		"marks":       {Config{MaxAge: 1000 * time.Hour, OutputMarks: OutputMarks{High: 1, OnWritable: func(gnet.Conn, bool) {}}}, 0},
		"write stall": {Config{WriteStallTimeout: stall}, n * int(time.Hour/stall)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHandSite(t, newEcho(), tc.cfg)
			conns := s.open(n)
			s.pass(t, time.Hour)
			require.InDelta(t, tc.want, s.asked, float64(tc.want)/20, "one question per WriteStallTimeout, about output that only the kernel holds")
			for _, c := range conns {
				s.OnClose(c, nil)
			}
		})
	}
}

// A reader reads all bytes. Tests with a handSite use it as the handler.
type reader struct{ gnet.BuiltinEventEngine }

func (*reader) OnTraffic(c gnet.Conn) gnet.Action {
	c.(*scriptedConn).buffered = 0
	return gnet.None
}

// receive makes a byte arrive on a connection.
func (s *handSite) receive(c *scriptedConn) {
	c.buffered = 1
	if s.OnTraffic(c) == gnet.Close {
		_ = s.el.Close(c)
	}
}

// TestOutputThatAnotherGoroutineWritesIsFound writes output that raises no event. A quiet loop is
// checked less often.
func TestOutputThatAnotherGoroutineWritesIsFound(t *testing.T) {
	const limit = 4 * time.Second
	for name, tc := range map[string]struct {
		cfg           Config
		output        int
		within, quiet time.Duration
	}{
		"hard limit":    {Config{OutputLimit: OutputLimit{Hard: 1000}}, 1001, time.Second + verdict.LargeFor, 8*time.Second + verdict.LargeFor},
		"soft limit":    {Config{OutputLimit: OutputLimit{Soft: 1000, SoftFor: limit}}, 1001, limit + limit/4, 2 * limit},
		"write stall":   {Config{WriteStallTimeout: limit}, 1, limit + limit/4, 2 * limit},
		"in the kernel": {Config{WriteStallTimeout: limit}, 0, 2*limit + limit/4, 3 * limit},
	} {
		for _, quiet := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/quiet=%v", name, quiet), func(t *testing.T) {
				cfg, within := tc.cfg, tc.within
				cfg.OutageGrace, cfg.Reset = -1, []Reason{}
				if quiet {
					within = tc.quiet
				}
				s := newHandSite(t, &reader{}, cfg)
				conns := s.open(64) // more than there are phases of a sweep
				talks := conns[63]
				pass := func(d time.Duration) {
					for end := s.at.Add(d); s.at < end; {
						if !quiet {
							s.receive(talks)
						}
						s.pass(t, s.watch.Clock.Tick())
					}
				}
				pass(time.Minute)
				s.answer = verdict.Evidence{Queued: 1}
				conns[0].outbound = tc.output
				pass(within + 3*s.watch.Clock.Tick())
				l, r, _, _ := s.watched(conns[0])
				require.Nil(t, r)
				if tc.output == 0 {
					require.LessOrEqual(t, l.Open, 1, "only the peer that sends is left")
				}
			})
		}
	}
}

// TestALoopThatHearsSomethingIsCheckedSoon has a loop that was quiet before.
func TestALoopThatHearsSomethingIsCheckedSoon(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{OutputLimit: OutputLimit{Hard: 1000}, OutageGrace: -1, Reset: []Reason{}})
	conns := s.open(2)
	s.pass(t, time.Minute+100*time.Millisecond) // a quiet sweep was at 56 s, the next would be at 64 s
	conns[0].outbound = 1001
	s.receive(conns[1])
	s.pass(t, time.Second+verdict.LargeFor+2*s.watch.Clock.Tick())
	require.EqualValues(t, 1, s.Stats().Closed)
}

// TestNewSettingsDoNotPutOffTheChecksOfOutput updates the Config more often than output in the
// kernel is checked.
func TestNewSettingsDoNotPutOffTheChecksOfOutput(t *testing.T) {
	const limit = 4 * time.Second
	cfg := Config{WriteStallTimeout: limit, OutageGrace: -1, Reset: []Reason{}}
	s := newHandSite(t, &reader{}, cfg)
	s.open(64)
	s.pass(t, time.Minute)
	s.answer = verdict.Evidence{Queued: 1}
	for end := s.at.Add(4 * limit); s.at < end; {
		s.pass(t, 900*time.Millisecond)
		require.NoError(t, s.Update(to(cfg)))
	}
	require.EqualValues(t, 64, s.Stats().Closed)
}

// TestASweepThatNeedsSeveralTasksGoesOn continues a sweep at once, not when the next one is due.
func TestASweepThatNeedsSeveralTasksGoesOn(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{OutputLimit: OutputLimit{Hard: 1000}, OutageGrace: -1, Reset: []Reason{}})
	conns := s.open(2000)
	s.pass(t, time.Minute)
	s.cost = 20 * time.Microsecond // per reading of the clock, which happens once for 64 connections
	conns[len(conns)-1].outbound = 1001
	s.pass(t, 8*time.Second+verdict.LargeFor+10*s.watch.Clock.Tick())
	require.EqualValues(t, 1, s.Stats().Closed)
}

// TestAnOldAnswerReportsNoNewByte stops the process between the kernel's answer to a sweep and the
// next reading of the clock.
func TestAnOldAnswerReportsNoNewByte(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Minute, WriteStallTimeout: time.Minute})
	c := s.open(1)[0]
	s.pass(t, time.Second)
	s.receive(c)
	heard := s.at
	s.pass(t, time.Second)
	l, r, id, st := s.watched(c)
	stamp := r.Heard
	s.answer = verdict.Evidence{
		Dated: true, Received: 1, Silent: s.at.Sub(heard), Step: time.Millisecond, Unsent: 1, Queued: 1,
	}
	s.took = 10 * time.Second
	l.sweepOne(id, st)
	require.Equal(t, heard.Add(time.Second), s.last, "the kernel is asked")
	require.Equal(t, stamp, r.Heard)
	s.OnClose(c, nil)
}

// TestALoopThatHearsIsNotQuiet has a handler that closes the connection on a message, and bytes
// that only the kernel reports.
func TestALoopThatHearsIsNotQuiet(t *testing.T) {
	e := newEcho()
	cfg := Config{ReadTimeout: 30 * time.Second, OutputLimit: OutputLimit{Hard: 1000}, OutageGrace: -1}
	s := newHandSite(t, e, cfg)
	conns := s.open(3)
	l, _, _, _ := s.watched(conns[0])
	s.pass(t, 20*time.Second)
	require.True(t, l.outputs.sweep.quiet)
	require.EqualValues(t, 8, (&sweep{every: 2, seldom: 8, quiet: true}).nextSweep(1))
	e.traffic = func(c gnet.Conn) gnet.Action { _ = s.el.Close(c); return gnet.None }
	s.receive(conns[0])
	require.False(t, l.outputs.sweep.quiet)
	s.pass(t, time.Second+s.watch.Clock.Tick())
	require.False(t, l.outputs.sweep.quiet, "a byte arrived since the check before the last")
	s.pass(t, time.Second)
	require.True(t, l.outputs.sweep.quiet)

	s.answer.Found = verdict.Unread
	s.pass(t, 7*time.Second)
	require.True(t, l.outputs.sweep.quiet)
	s.pass(t, time.Second+s.watch.Clock.Tick()) // the timeout
	require.False(t, l.outputs.sweep.quiet)
}

// TestChecksInEachTickMakeNoLoopQuiet has a peer that is heard less often than in each tick.
func TestChecksInEachTickMakeNoLoopQuiet(t *testing.T) {
	s := newTotalSite(t, Config{})
	conns := s.open(2)
	s.send(conns[0], 900)
	for range 10 {
		s.pass(t, 500*time.Millisecond)
		s.send(conns[1], 1)
		conns[1].outbound = 0
	}
	s.pass(t, 2*s.watch.Clock.Tick())
	l, _, _, _ := s.watched(conns[0])
	require.False(t, l.outputs.mustShed(), "the next task has time")
	require.False(t, l.outputs.sweep.quiet)
	require.LessOrEqual(t, l.outputs.sweep.due, s.at.Add(time.Second))
	require.GreaterOrEqual(t, l.outputs.sweep.beganAt, s.at.Add(-2*s.watch.Clock.Tick()))
}

// TestALoopWithoutOutputShedsNone: otherwise it would run task after task while others have it all.
func TestALoopWithoutOutputShedsNone(t *testing.T) {
	var all atomic.Int64
	o := outputs{totalLimit: 10, all: &all}
	all.Store(20)
	require.False(t, o.mustShed())
	o.set(1, 5)
	require.True(t, o.mustShed())
	o.totalLimit = 30
	require.False(t, o.mustShed())
}

func TestTheShortestLimitSaysHowOftenOutputIsChecked(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{WriteStallTimeout: time.Minute, OutputMarks: OutputMarks{High: 1, OnWritable: func(gnet.Conn, bool) {}}})
	conns := s.open(2)
	l, _, _, _ := s.watched(conns[0])
	for n, own := range []time.Duration{4 * time.Second, 2 * time.Minute} {
		require.NoError(t, handle(s.Reaper, conns[n]).SetLimits(ConnLimits{WriteStallTimeout: own}))
		require.Equal(t, 4*time.Second, l.outputs.ownStall)
	}
	require.NoError(t, handle(s.Reaper, conns[0]).SetLimits(ConnLimits{WriteStallTimeout: 800 * time.Millisecond}))
	require.Equal(t, 200*time.Millisecond, l.outputs.sweep.every, "marks alone need a second")
	require.Equal(t, 800*time.Millisecond, l.outputs.sweep.seldom)
}
