package verdict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/reap"
)

func TestIdleEventsRepeatUntilThereIsActivity(t *testing.T) {
	for _, r := range []Reason{reap.ReadIdle, reap.WriteIdle, reap.AllIdle} {
		t.Run(r.Error(), func(t *testing.T) {
			lim, f := testLimits(), testFacts()
			limit(lim, r, 90*second)
			timeout := rules[r].limit(lim)
			v := lim.Judge(f, neverAway, 90*second)
			require.Equal(t, Report{
				First: true, Limit: timeout, Lasted: timeout + 50*millisecond, Late: 50 * millisecond,
			}, lim.Report(v, f, 90*second+50*millisecond))

			f.Noticed[r-1] = 91 * second // rounded up
			require.Equal(t, Wait, lim.Judge(f, neverAway, mono.Time(91*second-1).Add(timeout)).Act)
			v = lim.Judge(f, neverAway, mono.Time(91*second).Add(timeout))
			require.Equal(t, Raise, v.Act)
			p := lim.Report(v, f, mono.Time(91*second).Add(timeout))
			require.False(t, p.First)
			require.Equal(t, second+2*timeout, p.Lasted, "over all events")
			require.Zero(t, p.Late)

			f.Heard, f.Wrote = At(92*second), At(92*second)
			v = lim.Judge(f, neverAway, mono.Time(92*second).Add(timeout))
			require.Equal(t, Raise, v.Act)
			require.True(t, lim.Report(v, f, mono.Time(92*second).Add(timeout)).First, "active since")
		})
	}
}

// TestFirstIdleEventInTheTickOfTheActivity tries the bounds of rounding.
func TestFirstIdleEventInTheTickOfTheActivity(t *testing.T) {
	lim, f := testLimits(), testFacts()
	f.Noticed[reap.ReadIdle-1] = mono.Time(20 * second).Add(lim.Tick)
	v := Verdict{Reason: reap.ReadIdle}
	require.False(t, lim.Report(v, f, 0).First, "noticed at the activity or after it")
	f.Noticed[reap.ReadIdle-1]--
	require.True(t, lim.Report(v, f, 0).First, "the notice was rounded up, and came before the activity")
}

func TestReasons(t *testing.T) {
	const now = 91 * second
	full := func() *Facts {
		f := testFacts()
		f.Output, f.Missed = 100, 3 // more pings than an Update allows now
		return f
	}
	for r, want := range map[Reason]Report{
		reap.NoFirstByte:      {Limit: 80 * second, Lasted: 81 * second},
		reap.NoHandshake:      {Limit: 80 * second, Lasted: 81 * second},
		reap.WriteStall:       {Limit: 50 * second, Lasted: 51 * second},
		reap.OverLimit:        {Limit: 45 * second, Lasted: 46 * second, Bytes: 100, Least: 99},
		reap.BelowMinRate:     {Limit: 40 * second, Lasted: 41 * second, Least: 40},
		reap.HeartbeatTimeout: {Limit: 71 * second, Lasted: 71 * second}, // an interval and two retries
		reap.MaxAge:           {Limit: 80 * second, Lasted: 81 * second},
	} {
		lim := testLimits()
		limit(lim, r, 90*second)
		v := lim.Judge(full(), neverAway, now)
		want.Late = second
		require.Equal(t, want, lim.Report(v, full(), now), "%v", r)
	}
	lim, f := testLimits(), testFacts()
	limit(lim, reap.Drained, 90*second)
	v := lim.Judge(f, neverAway, now)
	require.Equal(t, Report{Lasted: 71 * second, Late: second}, lim.Report(v, f, now))
	f.Heard = At(now + 1)
	require.Zero(t, lim.Report(v, f, now), "its last byte may seem to come later")
	lim.Drain.Deadline = 88*second - time.Duration(lim.Drain.Began)
	v.Due = At(88 * second).To
	require.Equal(t, time.Duration(3*second), lim.Report(v, f, now).Late, "the deadline of the drain has passed")

	lim = testLimits()
	lim.Output.Hard = 99
	v = lim.Judge(full(), neverAway, now)
	require.Equal(t, reap.OverLimit, v.Reason)
	require.Equal(t, Report{Bytes: 100, Least: 99}, lim.Report(v, full(), now))
	large := full()
	large.Large = Large{Since: mono.Time(now - LargeFor - second), Least: 50}
	require.Equal(t, Report{Bytes: 100, Least: 99, Late: second}, lim.Report(lim.Judge(large, neverAway, now), large, now), "it had its time")
	lim.Output = Output{Hard: 99, Soft: 10, SoftFor: second}
	v = lim.Judge(full(), neverAway, now)
	require.Equal(t, Report{Bytes: 100, Least: 99}, lim.Report(v, full(), now), "the hard limit is the reason")
	lim.Output = Output{Hard: 100}
	require.Equal(t, Wait, lim.Judge(full(), neverAway, now).Act, "the limit itself is allowed")
}

// TestHeartbeatTimeoutLastsSinceTheLastSignOfLife counts from the last byte, or from the last pong
// if only pongs are signs of life.
func TestHeartbeatTimeoutLastsSinceTheLastSignOfLife(t *testing.T) {
	lim := testLimits()
	lim.Heartbeat = Heartbeat{Interval: second, Retry: second, MaxMissed: 2, Jitter: 0.5}
	for _, tc := range []struct {
		name      string
		pongsOnly bool
		heardAt   mono.Time // as the kernel reports
		random    float64
		pings     []mono.Time
		now       mono.Time
		want      time.Duration
	}{
		{"pings in time", false, 0, 0, []mono.Time{21 * second, 22 * second}, 23 * second, 3 * second},
		{"the driver was late for the pings", false, 0, 0, []mono.Time{21*second + 400*millisecond, 22*second + 750*millisecond}, 23*second + 750*millisecond, 3750 * millisecond},
		{"the kernel knows the last byte", false, 19*second + second/2, 0, []mono.Time{21 * second, 22 * second}, 23 * second, 3500 * millisecond},
		{"only pongs", true, 0, 0, []mono.Time{21 * second, 22 * second}, 23 * second, 3 * second},
		{"only pongs, with jitter", true, 0, 0.5, []mono.Time{21250 * millisecond, 22250 * millisecond}, 23250 * millisecond, 3250 * millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lim.Heartbeat.PongsOnly = tc.pongsOnly
			f := &Facts{Opened: At(second), Heard: Span{19 * second, 20 * second}, HeardAt: tc.heardAt, Random: tc.random}
			if tc.pongsOnly {
				f.LastPing, f.Heard = 20*second, At(22*second)
			}
			for _, at := range tc.pings {
				require.Equal(t, Ping, lim.Judge(f, neverAway, at).Act)
				f.Missed, f.LastPing = f.Missed+1, at
			}
			v := lim.Judge(f, neverAway, tc.now)
			require.Equal(t, End, v.Act)
			p := lim.Report(v, f, tc.now)
			require.Equal(t, tc.want, p.Lasted)
			require.Zero(t, p.Late)
		})
	}
}

// TestLateIsTheTimeSinceTheDeadlineOfAnUndatedConnection checks that the inexactness of a stamp
// counts as lateness only if the kernel knows the instant.
func TestLateIsTheTimeSinceTheDeadlineOfAnUndatedConnection(t *testing.T) {
	lim := testLimits()
	lim.Read, lim.Write, lim.All = 10*second, 10*second, 10*second
	f := &Facts{Opened: At(second), Heard: Span{19 * second, 20 * second}, Wrote: Span{19 * second, 20 * second}}
	for _, r := range []Reason{reap.ReadIdle, reap.WriteIdle, reap.AllIdle} {
		v := Verdict{Act: Raise, Reason: r, Due: 30 * second}
		p := lim.Report(v, f, 30*second+second/10)
		require.Equal(t, time.Second/10, p.Late)
		require.Equal(t, 10*time.Second+time.Second/10, p.Lasted, "at least that")

		f.HeardAt, f.WroteAt = 19*second+second/4, 19*second+second/4
		p = lim.Report(v, f, 30*second+second/10)
		require.Equal(t, time.Second/10+3*time.Second/4, p.Late, "the kernel knows better")
		require.Equal(t, 10*time.Second+time.Second/10+3*time.Second/4, p.Lasted)
		f.HeardAt, f.WroteAt = 0, 0
	}
	f.Noticed[reap.ReadIdle-1] = 30 * second
	f.HeardAt = 19 * second
	p := lim.Report(Verdict{Act: Raise, Reason: reap.ReadIdle, Due: 40 * second}, f, 41*second)
	require.Equal(t, Report{Limit: 10 * second, Lasted: 22 * second, Late: second}, p, "the deadline of a repetition is known")
}

func TestLateCountsFromTheDeadlineOrALaterChange(t *testing.T) {
	limit := func(read time.Duration) *Limits { return &Limits{Tick: second / 10, Read: read, Horizon: time.Hour} }
	f := &Facts{Opened: At(100 * second), Heard: At(100 * second), Wrote: At(100 * second)}
	for _, tc := range []struct {
		name       string
		was, is    time.Duration
		since, now mono.Time
		want       time.Duration
	}{
		{"no change", 0, 10 * second, 0, 115 * second, 5 * second},
		{"shorter while it was not due", 60 * second, 10 * second, 150 * second, 151 * second, 1 * second},
		{"shorter before its time", 60 * second, 10 * second, 105 * second, 111 * second, 1 * second},
		{"longer", 10 * second, 60 * second, 105 * second, 161 * second, 1 * second},
		{"shorter when it was late already", 20 * second, 10 * second, 130 * second, 131 * second, 11 * second},
		{"no limit before", 0, 10 * second, 130 * second, 131 * second, 1 * second},
		{"longer when it was late already", 5 * second, 10 * second, 130 * second, 131 * second, 21 * second},
	} {
		lim := limit(tc.is)
		if tc.since != 0 {
			lim.Previous, lim.Since = limit(tc.was), tc.since
		}
		v := lim.Judge(f, &Away{}, tc.now)
		require.Equal(t, reap.ReadIdle, v.Reason, tc.name)
		require.Equal(t, tc.want, lim.Report(v, f, tc.now).Late, tc.name)
	}
	lim, f := limit(10*second), &Facts{Opened: At(99 * second), Heard: Span{99 * second, 100 * second}, HeardAt: 99 * second}
	lim.Previous, lim.Since = limit(0), 130*second
	v := lim.Judge(f, &Away{}, 131*second)
	require.Equal(t, time.Second, lim.Report(v, f, 131*second).Late, "whatever the kernel knows of the last byte")
}
