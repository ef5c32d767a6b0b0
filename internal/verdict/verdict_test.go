package verdict

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/reap"
)

// These constants are untyped, for instants and durations.
const (
	second      = 1_000_000_000
	millisecond = second / 1000
	kernelStep  = 5 * millisecond // the resolution of the kernel in these tests
)

// neverAway is a server that was never away.
var neverAway = &Away{}

// testLimits returns limits that are all off.
func testLimits() *Limits {
	return &Limits{Tick: 100 * time.Millisecond, Horizon: time.Hour}
}

// testFacts returns a connection with all facts known: each reason counts from another instant.
func testFacts() *Facts {
	return &Facts{
		Opened: At(10 * second), Heard: At(20 * second), Wrote: At(30 * second),
		StalledSince: 40 * second, OverSince: 45 * second,
		RatedSince: 50 * second, Counting: true,
		LastPing: 55 * second, Missed: 2, EndedSince: 60 * second,
		Fresh: true, Random: 0.5,
	}
}

// limit sets the limit of a reason so that it is due at an instant.
func limit(lim *Limits, r Reason, due mono.Time) {
	switch r {
	case reap.ReadIdle:
		lim.Read = due.Sub(20 * second)
	case reap.WriteIdle:
		lim.Write = due.Sub(30 * second)
	case reap.AllIdle:
		lim.All = due.Sub(30 * second)
	case reap.NoFirstByte:
		lim.FirstByte = due.Sub(10 * second)
	case reap.NoHandshake:
		lim.Handshake = due.Sub(10 * second)
	case reap.WriteStall:
		lim.Stall = due.Sub(40 * second)
	case reap.OverLimit:
		lim.Output = Output{Soft: 99, SoftFor: due.Sub(45 * second)}
	case reap.BelowMinRate:
		lim.Rate = Rate{BytesPerSecond: 1, Window: due.Sub(50 * second)}
	case reap.HalfClosed:
		lim.HalfClosed = due.Sub(60 * second)
	case reap.HeartbeatTimeout:
		lim.Heartbeat.Interval, lim.Heartbeat.Retry, lim.Heartbeat.MaxMissed = second, due.Sub(55*second), 2
	case reap.MaxAge:
		lim.Age = due.Sub(10 * second)
	case reap.Drained:
		// Half of Spread.
		lim.Drain = Drain{Began: due - 10*second, Spread: 20 * second, Deadline: 40 * second}
	}
}

func allReasons() (all []Reason) {
	for r := First; r <= LastDue; r++ {
		all = append(all, r)
	}
	return all
}

// TestEachPairOfKinds combines two limits: the earlier deadline decides, also in a judgement after
// both. At the same instant the smaller Reason decides.
func TestEachPairOfKinds(t *testing.T) {
	for _, a := range allReasons() {
		for _, b := range allReasons() {
			if a == b {
				continue
			}
			t.Run(fmt.Sprintf("%v, %v", a, b), func(t *testing.T) {
				const early, late = mono.Time(90 * second), mono.Time(95 * second)
				lim := testLimits()
				limit(lim, a, early)
				limit(lim, b, late)
				require.Equal(t, early, lim.Judge(testFacts(), neverAway, 80*second).Next)
				for _, now := range []mono.Time{early, late - 1, late, 100 * second} {
					v := lim.Judge(testFacts(), neverAway, now)
					require.Equal(t, a, v.Reason, "judged at %v", now)
					require.Equal(t, early, v.Due)
				}
				limit(lim, b, early)
				require.Equal(t, min(a, b), lim.Judge(testFacts(), neverAway, late).Reason)
			})
		}
	}
}

// TestHeartbeats is the case of gnet issue 383: 60 seconds of silence, three pings 30 seconds
// apart, then the close.
func TestHeartbeats(t *testing.T) {
	lim := testLimits()
	lim.Heartbeat = Heartbeat{Interval: 60 * second, Retry: 30 * second, MaxMissed: 3}
	f := &Facts{Opened: At(5 * second), Heard: At(20 * second), Ready: true}
	for _, step := range []struct {
		at  mono.Time
		act Act
	}{{80 * second, Ping}, {110 * second, Ping}, {140 * second, Ping}, {170 * second, End}} {
		require.Equal(t, Wait, lim.Judge(f, neverAway, step.at-1).Act)
		require.Equal(t, step.at, lim.Judge(f, neverAway, step.at-1).Next)
		v := lim.Judge(f, neverAway, step.at)
		require.Equal(t, step.act, v.Act)
		require.Equal(t, reap.HeartbeatTimeout, v.Reason)
		if step.act == End {
			require.Equal(t, Report{Limit: 150 * second, Lasted: 151 * second, Late: second}, lim.Report(v, f, step.at+second))
		}
		f.LastPing, f.Missed = step.at, f.Missed+1
	}
	f.Missed, f.Heard = 0, At(165*second)
	require.Equal(t, mono.Time(225*second), lim.Judge(f, neverAway, 170*second).Next, "any byte is an answer")
	f.Random = 1
	require.Equal(t, mono.Time(225*second), lim.Judge(f, neverAway, 170*second).Next, "without jitter all pings come at the interval")
	lim.Heartbeat.Jitter = 0.2
	require.Equal(t, mono.Time(237*second), lim.Judge(f, neverAway, 170*second).Next, "the first ping comes up to a fifth later")
}

func TestPongsOnly(t *testing.T) {
	lim := testLimits()
	lim.Heartbeat = Heartbeat{Interval: 60 * second, Retry: 30 * second, MaxMissed: 3, PongsOnly: true}
	f := &Facts{Opened: At(5 * second), Heard: At(64 * second), Ready: true}
	pong := func(at mono.Time) {
		require.True(t, lim.Hear(f, &Evidence{Found: Unread}, at))
	}
	require.Equal(t, mono.Time(65*second), lim.deadline(reap.HeartbeatTimeout, f).due, "from when it was opened, whatever came")
	pong(70 * second)
	require.Equal(t, mono.Time(130*second), lim.deadline(reap.HeartbeatTimeout, f).due)
	f.LastPing, f.Missed = 130*second, 1
	require.Equal(t, mono.Time(160*second), lim.deadline(reap.HeartbeatTimeout, f).due)
	pong(140 * second)
	require.Equal(t, mono.Time(200*second), lim.deadline(reap.HeartbeatTimeout, f).due)
	require.Zero(t, f.Missed)
	f.Leaving, f.LastPing = true, 150*second
	pong(155 * second)
	require.Equal(t, mono.Time(150*second), f.LastPing, "the goodbye is not a pong")
}

// TestAHandshakeIsExcusedOnlyWhileTheServerIsLate puts a handshake off while bytes wait that may
// complete it, at most until twice its limit.
func TestAHandshakeIsExcusedOnlyWhileTheServerIsLate(t *testing.T) {
	lim := testLimits()
	lim.Handshake = 10 * second
	const due = mono.Time(15 * second)
	for _, late := range []time.Duration{0, 1, lim.Tick, 3 * lim.Tick, 10*second - 1, 10 * second, 11 * second} {
		f, now := &Facts{Opened: At(5 * second)}, due.Add(late)
		v := lim.Judge(f, neverAway, now)
		require.Equal(t, Verdict{Act: End, Reason: reap.NoHandshake, Due: due, Next: now.Add(lim.Horizon)}, v, "no bytes wait: the peer is slow")

		lim.Hear(f, &Evidence{Found: Unread}, now)
		v = lim.Judge(f, neverAway, now)
		if late < 10*second {
			require.Equal(t, Verdict{Due: Never, Next: min(now.Add(lim.Tick), due+10*second), PutOff: true}, v, "late by %v", late)
		} else {
			require.Equal(t, End, v.Act, "late by %v", late)
			require.Equal(t, due+10*second, v.Due)
		}

		lim.Hear(f, &Evidence{}, now)
		require.Equal(t, End, lim.Judge(f, neverAway, now).Act, "the handler has read them, and that did not complete it")
	}
	f := &Facts{Opened: At(5 * second), Unread: true}
	require.Equal(t, Verdict{Due: Never, Next: due}, lim.Judge(f, neverAway, due-1), "before the deadline nothing is put off")
}

func TestEachReasonThatMayEndAConnectionNeedsALimit(t *testing.T) {
	const now = mono.Time(1000 * time.Hour)
	v := testLimits().Judge(testFacts(), neverAway, now)
	require.Equal(t, Verdict{Due: Never, Next: now.Add(time.Hour)}, v, "no limit is on")
}
