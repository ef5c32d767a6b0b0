package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

func TestASilentConnectionIsClosedInTime(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 10 * time.Second, KeepClosed: 1})
	p.open()
	p.pass(10*time.Second - p.Clock.Tick())
	require.Empty(t, p.closed)
	p.pass(3 * p.Clock.Tick())
	require.Len(t, p.closed, 1)
	require.Equal(t, "test: connection reaped: read idle for 10s, limit 10s", p.closed[0].Error())
	require.Zero(t, p.Watcher.Open.Load())
	require.Zero(t, p.Schedule.Len())
	require.Same(t, p.closed[0], p.Closed.Newest(1)[0].Err)
}

func TestACloseThatFailsIsTriedAgainAfterASecond(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour, HandshakeTimeout: time.Second})
	p.stays = true
	p.open()
	p.pass(5*time.Second + 500*time.Millisecond)
	require.InDelta(t, 4, len(p.closed), 1)
}

// TestOnlyTheSeeminglyDeadAreSavedByTheKernel asks about output of a peer that the kernel hears.
func TestOnlyTheSeeminglyDeadAreSavedByTheKernel(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Minute, WriteStallTimeout: 8 * time.Second})
	id, c := p.open()
	p.answer = verdict.Evidence{Dated: true, Received: 1, Queued: 1}
	p.pass(time.Second)
	p.Poll(id, c)
	p.pass(5 * time.Second)
	require.Greater(t, p.asked, 2)
	require.Zero(t, p.Counters.SparedUnread)
}

// TestObserveOnlyIsCountedOnce observes a connection, which is closed by a kick all the same.
func TestObserveOnlyIsCountedOnce(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Second, ObserveOnly: true})
	id, c := p.open()
	p.pass(10 * time.Second)
	require.EqualValues(t, 1, p.Counters.Observed[reap.ReadIdle])
	require.EqualValues(t, 1, p.Decided.Load())
	require.False(t, p.Shard.Kick(id, p.tag(c)+1), "another connection")
	require.True(t, p.Shard.Kick(id, p.tag(c)))
	require.Equal(t, reap.Kicked, p.closed[0].Reason)
	require.Zero(t, p.Decided.Load())
}

// TestTheKernelIsAskedWhenAVerdictIsPutOff stops the process beyond a deadline. The peer may have
// sent something meanwhile.
func TestTheKernelIsAskedWhenAVerdictIsPutOff(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 10 * time.Second})
	p.open()
	p.pass(time.Second)
	p.now = p.now.Add(30 * time.Second)
	p.pass(p.Clock.Tick())
	require.EqualValues(t, 1, p.Counters.Postponed)
	require.Equal(t, 1, p.asked)
}

// TestEarlySegmentsCountOnce has bytes that wait for lost ones, and acknowledgements that go on.
func TestEarlySegmentsCountOnce(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 10 * time.Second})
	id, c := p.open()
	p.answer = verdict.Evidence{Dated: true, Received: 1, Silent: 10 * time.Second, Early: 3, Answered: 4 * time.Second}
	p.pass(15 * time.Second)
	require.Empty(t, p.closed, "heard after 6 s")
	peer, _, _ := p.Silence(id, c)
	require.InDelta(t, 9*time.Second, peer, float64(2*p.Clock.Tick()), "nor do later acknowledgements save it from being shed")
	p.answer.Silent, p.answer.Early = 16*time.Second, 4
	p.pass(6 * time.Second)
	require.Empty(t, p.closed, "heard again after 12 s")
	p.pass(2 * time.Second)
	require.Len(t, p.closed, 1)
	require.Empty(t, p.early)
	require.False(t, p.At(id).Used())
}

func TestAConnectionWithOutputThatWaitsIsNotQuiet(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour})
	id, c := p.open()
	p.answer = verdict.Evidence{Dated: true, Received: 1, Silent: 10 * time.Second, Quiet: 10 * time.Second}
	p.pass(10 * time.Second)
	require.InDelta(t, 10*time.Second, p.Quiet(id, c), float64(2*p.Clock.Tick()))
	p.answer.Quiet, p.answer.Resent = time.Second, true
	require.InDelta(t, 10*time.Second, p.Quiet(id, c), float64(2*p.Clock.Tick()), "the kernel has sent a segment again")
	p.answer.Queued, p.answer.Silent = 1, time.Second
	require.Zero(t, p.Quiet(id, c))
	_, _, news := p.Silence(id, c)
	require.True(t, news)
}

// TestAPeerThatHasSentNothingIsNotHeard has a kernel that tells when the connection began.
func TestAPeerThatHasSentNothingIsNotHeard(t *testing.T) {
	p := newAskingPort(t, testConfig{ReadTimeout: 10 * time.Second})
	p.open()
	p.answer = verdict.Evidence{Dated: true, Step: 10 * time.Millisecond}
	p.pass(11 * time.Second)
	require.Len(t, p.closed, 1)
}

// TestAConnectionThatTheHandlerClosesIsNotClosedAgain closes an idle connection in OnIdle.
func TestAConnectionThatTheHandlerClosesIsNotClosedAgain(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Second, OnIdle: func() {}})
	p.onIdle = p.Drop
	p.open()
	p.pass(2 * time.Second)
	require.Empty(t, p.closed)
	require.EqualValues(t, 1, p.Counters.Closed)
}

// TestALookEndsWithTheEngine stops the engine in OnIdle. It closes all connections.
func TestALookEndsWithTheEngine(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Second, OnIdle: func() {}})
	p.onIdle = func(uint32, *testConn) { p.Halted = true }
	_, c := p.open()
	p.pass(time.Minute)
	require.Empty(t, p.closed)
	require.EqualValues(t, 1, p.Counters.Events[reap.ReadIdle])
	require.Equal(t, 1, p.asked)
	require.True(t, c.Used())
	p.Halted = false
	p.pass(closeRetry + 2*p.Clock.Tick())
	require.EqualValues(t, 2, p.Counters.Events[reap.ReadIdle], "the connection is in the wheel")
}

// TestABrokenConnectionIsLookedAtAgain has an event loop that does not report the end.
func TestABrokenConnectionIsLookedAtAgain(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 10 * time.Second})
	p.open()
	p.answer.Found = verdict.Ended
	p.pass(15 * time.Second)
	require.Empty(t, p.closed)
	p.answer.Found = verdict.Nothing
	p.pass(closeRetry + 2*p.Clock.Tick())
	require.Len(t, p.closed, 1)
}

func TestAPollKnowsHowLongItsQuestionTook(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour})
	id, c := p.open()
	p.takes = time.Second
	p.Poll(id, c)
	require.Equal(t, time.Second, p.evidence.Took)
}

func TestADrainClosesObservedConnections(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Second, ObserveOnly: true})
	p.open()
	p.pass(10 * time.Second)
	require.EqualValues(t, 1, p.Decided.Load())
	require.NoError(t, p.Drain(0, 0))
	require.NoError(t, p.ScaleTimeouts(1, 500*time.Millisecond), "and another change before the next look")
	p.pass(3 * p.Clock.Tick())
	require.Len(t, p.closed, 1)
	require.LessOrEqual(t, p.closed[0].Late, 3*p.Clock.Tick(), "nothing closed it before")
	require.Zero(t, p.Decided.Load())
}

// TestALongRoundFollowsNewSettings changes the settings between two looks of a round.
func TestALongRoundFollowsNewSettings(t *testing.T) {
	p := newAskingPort(t, testConfig{ReadTimeout: time.Minute})
	id, c := p.open()
	p.pass(30 * time.Second)
	require.NoError(t, p.ScaleTimeouts(1, 10*time.Second))
	p.Look(c.timer, id)
	require.Same(t, p.Settings(), p.Set)
	require.Len(t, p.closed, 1)
}

// TestAReleasedConnectionIsClosedInTime ends a Hold without a rearm, as package idlenet does.
func TestAReleasedConnectionIsClosedInTime(t *testing.T) {
	const timeout = 10 * time.Second
	p := newAskingPort(t, testConfig{ReadTimeout: timeout})
	_, c := p.open()
	c.Hold()
	p.pass(timeout + timeout/2)
	require.True(t, c.Release())
	c.State.Touch(&p.Clock)
	p.pass(timeout - p.Clock.Tick())
	require.Empty(t, p.closed)
	p.pass(3 * p.Clock.Tick())
	require.Len(t, p.closed, 1)
}

// TestADrainClosesAReleasedConnection releases it after its turn, as package idlenet does.
func TestADrainClosesAReleasedConnection(t *testing.T) {
	p := newAskingPort(t, testConfig{ReadTimeout: time.Hour})
	id, c := p.open()
	c.Hold()
	require.NoError(t, p.Drain(0, time.Minute))
	p.pass(55 * time.Second)
	p.Release(id, c)
	p.pass(3 * p.Clock.Tick())
	require.Len(t, p.closed, 1)
	require.LessOrEqual(t, p.closed[0].Late, 3*p.Clock.Tick(), "it was held until then")
}

func TestOnlyAHeartbeatTimeoutCountsTheLastPingAsMissed(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour, ObserveOnly: true})
	id, c := p.open()
	for r := verdict.First; r <= verdict.LastDue; r++ {
		for unanswered := range 2 {
			f, before := p.Facts(id, c, p.now), p.Counters.Missed
			f.Missed = unanswered
			looker[conntable.Record]{&p.Shard}.carryOut(id, c, verdict.Verdict{Act: verdict.End, Reason: r}, &f, p.now)
			want := 0
			if r == reap.HeartbeatTimeout {
				want = unanswered
			}
			require.EqualValues(t, want, p.Counters.Missed-before, "%v, %d pings without an answer", r, unanswered)
		}
	}
	require.EqualValues(t, 1, p.Counters.Observed.Export().Total(), "a connection is observed once")
}

// TestNoAllocations looks at connections, and rearms them.
func TestNoAllocations(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour})
	id, c := p.open()
	require.Zero(t, testing.AllocsPerRun(1000, func() { c.State.Touch(&p.Clock); p.Rearm(id, c) }))
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		p.Soon(c)
		p.Schedule.Advance(1)
	}))
}

// TestUpdateHoldsDuringAQuestion calls Update while a front end that does not see messages asks the
// kernel.
func TestUpdateHoldsDuringAQuestion(t *testing.T) {
	open := func(cfg testConfig, edit func(*testConfig)) *testPort {
		p := newAskingPort(t, cfg)
		p.open()
		p.pass(500 * time.Millisecond)
		p.onAsk = func() {
			if p.now >= mono.Time(900*time.Millisecond) && p.Settings().Version == 1 {
				require.NoError(t, p.update(edit))
			}
		}
		p.pass(time.Second)
		require.EqualValues(t, 2, p.Settings().Version)
		return p
	}
	cfg := testConfig{ReadTimeout: time.Second, Tick: 20 * time.Millisecond}
	require.Empty(t, open(cfg, func(cfg *testConfig) { cfg.ReadTimeout = time.Hour }).closed)

	cfg = testConfig{ReadTimeout: time.Hour, MaxAge: time.Second, MaxAgeGrace: time.Minute, Tick: 20 * time.Millisecond}
	p := open(cfg, func(cfg *testConfig) { cfg.ObserveOnly = true })
	require.Zero(t, p.farewells, "it is observed")
	require.EqualValues(t, 1, p.Counters.Observed[reap.MaxAge])
	cfg.ObserveOnly = true
	p = open(cfg, func(cfg *testConfig) { cfg.ObserveOnly = false })
	require.Equal(t, 1, p.farewells)
	require.Empty(t, p.closed, "before the grace")
	require.NoError(t, p.update(func(cfg *testConfig) { cfg.KeepClosed = 1 }))
	require.True(t, p.Shard.Kick(0, p.tag(p.At(0))))
	require.Len(t, p.Closed.Newest(1), 1, "of a kick too")
}
