package verdict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/reap"
)

func TestPolls(t *testing.T) {
	for _, tc := range []struct {
		lim                   Limits
		output, quiet, kernel time.Duration
	}{
		{Limits{Read: time.Minute}, 0, 0, 0},
		{Limits{Stall: 60 * second}, 15 * second, 60 * second, 60 * second},
		{Limits{Stall: second}, 250 * time.Millisecond, second, second},
		// Output is polled at most once in a tick.
		{Limits{Stall: 50 * time.Millisecond}, 100 * time.Millisecond, 100 * time.Millisecond, 50 * time.Millisecond},
		{Limits{Output: Output{Hard: 1 << 20}}, second, 8 * second, 0},
		{Limits{Output: Output{Total: 1 << 20, SoftFor: second / 10}}, second, 8 * second, 0},
		{Limits{Output: Output{Hard: 1 << 20, Soft: 1 << 10, SoftFor: 2 * second}}, 500 * time.Millisecond, 2 * second, 0},
		{Limits{Output: Output{Soft: 1 << 10, SoftFor: time.Minute}, Stall: 20 * second}, 5 * second, 20 * second, 20 * second},
		{Limits{HalfClosed: 60 * second}, 0, 0, 15 * second},
		{Limits{HalfClosed: 60 * second, Stall: 10 * second}, 2500 * time.Millisecond, 10 * second, 10 * second},
		{Limits{HalfClosed: 200 * time.Millisecond}, 0, 0, 100 * time.Millisecond}, // a tick
	} {
		tc.lim.Tick, tc.lim.Horizon = 100*time.Millisecond, time.Hour
		require.Equal(t, tc.output, tc.lim.PollOutput())
		require.Equal(t, tc.quiet, tc.lim.PollQuiet())
		require.Equal(t, tc.kernel, tc.lim.PollKernel(false), "%+v", tc.lim)
		next := func(f Facts) mono.Time {
			f.Opened, f.Heard, f.Wrote = At(second), At(second), At(second)
			return tc.lim.Judge(&f, neverAway, 2*second).Next
		}
		seldom := next(Facts{})
		require.Equal(t, tc.lim.Read == 0, seldom == mono.Time(2*second).Add(time.Hour), "no output waits")
		for _, f := range []Facts{{Output: 1}, {OverSince: second}} {
			require.Equal(t, min(seldom, mono.Time(2*second).Add(Shorter(tc.output, time.Hour))), next(f))
		}
	}
	require.Equal(t, LargeFor/MaxTimeouts, (&Limits{Output: Output{Hard: 1}}).Longest(), "outages are remembered for LargeFor")
	require.Equal(t, time.Duration(1), (&Limits{Read: 1}).Longest(), "output is not limited")
	require.Equal(t, time.Duration(15*second), (&Limits{HalfClosed: 60 * second, Stall: second}).PollKernel(true), "sweeps find stalls")
}

func TestJitterSpreadsIdleTimeoutsAndOnlyThose(t *testing.T) {
	for r := First; r <= LastDue; r++ {
		lim, f := testLimits(), testFacts()
		limit(lim, r, 90*second)
		without := lim.deadline(r, f).due
		lim.Jitter = 0.5
		base := lim.deadline(r, f).due
		if IsIdle(r) {
			require.Greater(t, base, mono.Time(90*second))
			f.Random = 0
			require.Equal(t, mono.Time(90*second), lim.deadline(r, f).due, "never early")
			f.Random = 1
			require.Equal(t, mono.Time(90*second).Add(rules[r].limit(lim)/2), lim.deadline(r, f).due)
			v := lim.Judge(f, neverAway, lim.deadline(r, f).due)
			require.Equal(t, rules[r].limit(lim), lim.Report(v, f, v.Due).Limit)
			require.Zero(t, lim.Report(v, f, v.Due).Late)
		} else {
			require.Equal(t, without, base, "%v", r)
		}
	}
}

func TestMaxAge(t *testing.T) {
	lim := testLimits()
	lim.Age, lim.AgeGrace = 100*second, 5*second
	f := testFacts()
	for random, want := range map[float64]mono.Time{0: 100 * second, 0.5: 110 * second, 1: 120 * second} {
		f.Random = random
		require.Equal(t, want, lim.deadline(reap.MaxAge, f).due, "a tenth less or more")
	}
	f.Random = 0.5
	v := lim.Judge(f, neverAway, 110*second)
	require.Equal(t, Farewell, v.Act)
	f.Leaving, f.LastPing = true, 111*second
	require.Equal(t, Wait, lim.Judge(f, neverAway, 116*second-1).Act)
	v = lim.Judge(f, neverAway, 116*second)
	require.Equal(t, End, v.Act)
	require.Equal(t, Report{Limit: 100 * second, Lasted: 106 * second}, lim.Report(v, f, 116*second))
	lim.Age = 0
	require.Equal(t, Wait, lim.Judge(f, neverAway, 116*second).Act, "the limit was switched off after the goodbye")
	lim.Age, f.Leaving, lim.AgeGrace = 100*second, false, 0
	require.Equal(t, End, lim.Judge(f, neverAway, 110*second).Act, "without a grace there is no farewell")
}

func TestDrain(t *testing.T) {
	lim := testLimits()
	lim.Drain = Drain{Began: 100 * second, Spread: 10 * second, Deadline: 30 * second}
	for _, tc := range []struct {
		name string
		f    Facts
		due  mono.Time
	}{
		{"idle", Facts{Heard: At(20 * second), Random: 0.5}, 105 * second},
		{"idle, and the first", Facts{Heard: At(20 * second)}, 100 * second},
		{"active before its turn", Facts{Heard: At(103 * second), Random: 0.5}, 105 * second},
		{"active a second before its turn", Facts{Heard: At(104 * second), Random: 0.5}, 105 * second},
		{"active at its turn", Facts{Heard: At(104*second + 1), Random: 0.5}, 120 * second},
		{"active after its turn", Facts{Heard: At(110 * second), Random: 0.25}, 115 * second},
		{"written to after its turn", Facts{Heard: At(20 * second), Wrote: At(110 * second), Random: 0.25}, 115 * second},
		{"held", Facts{Heard: At(20 * second), Held: true}, 130 * second},
		{"its output waits", Facts{Heard: At(20 * second), Output: 1}, 130 * second},
	} {
		require.Equal(t, tc.due, lim.deadline(reap.Drained, &tc.f).due, tc.name)
	}
	waits := Facts{Opened: At(20 * second), Heard: At(20 * second), Wrote: At(20 * second), Output: 1}
	v := lim.Judge(&waits, neverAway, 110*second)
	require.Equal(t, Wait, v.Act)
	require.Equal(t, mono.Time(110*second).Add(drainPoll), v.Next, "it may be closed as soon as its output has been sent")
	waits.Output = 0
	require.Equal(t, End, lim.Judge(&waits, neverAway, 110*second).Act)
	waits.Held = true
	require.Equal(t, mono.Time(130*second), lim.Judge(&waits, neverAway, 110*second).Next, "nothing else is to come")
}

func TestTheLeastBytesInAWindow(t *testing.T) {
	for _, tc := range []struct {
		rate   int
		window time.Duration
		want   int
	}{
		{0, time.Second, 0},
		{25, 280 * time.Millisecond, 7},
		{25, 280*time.Millisecond + 1, 8},
		{1, time.Millisecond, 1},
		{1, 5 * time.Second, 5},
		{100, 30 * time.Minute, 180_000},
		{1<<31 - 1, time.Second, 1<<31 - 1},
	} {
		lim := Limits{Rate: Rate{BytesPerSecond: tc.rate, Window: tc.window}}
		require.Equal(t, tc.want, lim.leastInWindow(), "%d bytes a second for %v", tc.rate, tc.window)
	}
}
