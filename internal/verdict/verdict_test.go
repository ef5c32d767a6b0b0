package verdict

import (
	"math/rand/v2"
	"slices"
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
	lim.Heartbeat.Retry, f.Heard = 100*second, At(170*second)
	require.Equal(t, mono.Time(242*second), lim.Judge(f, neverAway, 170*second).Next, "the last one was answered")
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

// A life is a connection of a small model: a peer that sends at an interval, TCP, and sequences of
// outages in which all packets are lost. The model is exact: the server knows each outage.
type life struct {
	timeout  time.Duration
	interval time.Duration // between two messages of the peer
	phase    time.Duration
	until    mono.Time // the peer vanishes then
	outages  Outages
}

const (
	firstResend = 200 * time.Millisecond
	lastResend  = 2 * time.Minute
	modelStep   = 20 * time.Millisecond
)

// randomLife returns a life with one to six outages, 0.1 to 2 timeouts long and 0.1 to 1.5 apart.
func randomLife(rng *rand.Rand) (l life) {
	l.timeout = time.Duration(1+rng.IntN(10)) * time.Second
	part := func(least, most float64) time.Duration { return Share(l.timeout, least+rng.Float64()*(most-least)) }
	l.interval, l.phase = part(0.3, 0.95), part(0, 1)
	at := mono.Time(0).Add(part(3, 4))
	for range 1 + rng.IntN(6) {
		to := at.Add(part(0.1, 2))
		l.outages = append(l.outages, Outage{From: at, To: to, Length: to.Sub(at)})
		at = to.Add(part(0.1, 1.5))
	}
	l.until = Never
	return l
}

// throttledLife returns a life with many outages of 50 to 500 ms, 0.3 to 8 s apart.
func throttledLife(rng *rand.Rand) (l life) {
	l.timeout = time.Duration(2+rng.IntN(30)) * time.Second
	l.interval = Share(l.timeout, 0.3+0.65*rng.Float64())
	l.phase = Share(l.timeout, rng.Float64())
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Int64N(int64(most-least)))
	}
	longest := between(400*time.Millisecond, 8*time.Second)
	at := mono.Time(0).Add(3 * l.timeout)
	for range 20 + rng.IntN(60) {
		to := at.Add(between(50*time.Millisecond, 500*time.Millisecond))
		l.outages = append(l.outages, Outage{From: at, To: to, Length: to.Sub(at)})
		at = to.Add(between(300*time.Millisecond, longest))
	}
	l.until = Never
	return l
}

// end returns the end of the last outage.
func (l *life) end() mono.Time { return l.outages[len(l.outages)-1].To }

// arrivals returns when the bytes of the peer reach the kernel. A lost segment is sent again after
// intervals that double; later messages wait for it.
func (l *life) arrivals(to mono.Time) (all []mono.Time) {
	down := func(at mono.Time) bool { return covers(l.outages, at) }
	for at := mono.Time(l.phase); at < min(to, l.until); at = at.Add(l.interval) {
		arrival := at
		if n := len(all); n > 0 && at < all[n-1] { // it follows the one that is sent again
			arrival = all[n-1]
		}
		for wait := firstResend; down(arrival); wait = min(2*wait, lastResend) {
			arrival = arrival.Add(wait)
		}
		all = append(all, arrival)
	}
	return all
}

// ends returns when the server closes the connection, or Never, if it judges in each step until
// the given instant. The server knows an outage as soon as it has begun.
func (l *life) ends(lim *Limits, to mono.Time) mono.Time {
	arrivals, next, heard := l.arrivals(to), 0, mono.Time(0)
	var known Outages
	later := l.outages
	for now := mono.Time(0); now < to; now = now.Add(modelStep) {
		if len(later) > 0 && later[0].To <= now {
			known, later = known.Add(later[0], 0), later[1:]
		}
		if len(later) > 0 && later[0].From <= now {
			continue
		}
		for next < len(arrivals) && arrivals[next] <= now {
			heard = arrivals[next]
			next++
		}
		f := Facts{Opened: At(0), Heard: At(heard), ArrivedAfter: max(heard, 1), Wrote: At(0)}
		if v := lim.Judge(&f, paused(known), now); v.Act != Wait {
			return now
		}
	}
	return Never
}

// TestSequencesOfOutages has living peers and peers that vanish before the first outage.
func TestSequencesOfOutages(t *testing.T) {
	t.Run("long ones", func(t *testing.T) { testSequences(t, 1000, randomLife) })
	t.Run("short ones", func(t *testing.T) { testSequences(t, 200, throttledLife) })
}

func testSequences(t *testing.T, lives int, random func(*rand.Rand) life) {
	seed := uint64(1)
	rng := rand.New(rand.NewPCG(seed, 0))
	cut, kept := 0, []float64(nil)
	for range lives {
		l := random(rng)
		lim := &Limits{Read: l.timeout, Grace: lastResend, Hold: time.Hour, Horizon: time.Hour, Resend: Resend}
		if at := l.ends(lim, l.end().Add(20*l.timeout)); at != Never {
			cut++
		}
		l.until = l.outages[0].From.Add(-l.interval)
		heard := mono.Time(0)
		for _, at := range l.arrivals(Never) {
			heard = at
		}
		at := l.ends(lim, l.end().Add(100*l.timeout))
		require.NotEqual(t, Never, at, "a dead connection is kept: %+v", l)
		ran := at.Sub(heard) - l.outages.Within(heard, at)
		kept = append(kept, float64(ran)/float64(l.timeout))
	}
	slices.Sort(kept)
	require.Zero(t, cut, "of %d", lives)
	t.Logf("cut %d of %d; dead kept: p50 %.2f p90 %.2f p99 %.2f max %.2f timeouts", cut, lives,
		kept[len(kept)/2], kept[len(kept)*9/10], kept[len(kept)*99/100], kept[len(kept)-1])
}

func TestAHeartbeatThatIsSwitchedOffEndsNothing(t *testing.T) {
	lim := Limits{Heartbeat: Heartbeat{Retry: time.Second, MaxMissed: 1}, Horizon: time.Hour}
	require.Equal(t, Wait, lim.Judge(&Facts{Missed: 1}, &Away{}, mono.Time(time.Minute)).Act)
}

// TestAPongThatNoByteShowsIsOne has a pong that Conn.Alive tells of, and a long Retry.
func TestAPongThatNoByteShowsIsOne(t *testing.T) {
	h := Heartbeat{Interval: 10 * time.Second, Retry: 30 * time.Second, MaxMissed: 1, PongsOnly: true}
	lim := Limits{Heartbeat: h, Tick: time.Second, Horizon: time.Hour}
	alive := mono.Time(100 * time.Second)
	f := Facts{Heard: At(alive.Add(-5 * time.Second)), LastPing: alive}
	require.Equal(t, alive.Add(h.Interval), lim.Judge(&f, &Away{}, alive).Next)
}
