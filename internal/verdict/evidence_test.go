package verdict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/reap"
)

func TestHear(t *testing.T) {
	const now = 31 * second
	silent := func(d time.Duration) Evidence { return Evidence{Dated: true, Step: kernelStep, Silent: d, Received: 1} }
	early := func(inOrder, early time.Duration) Evidence {
		return Evidence{Dated: true, Step: kernelStep, Silent: inOrder, Received: 1, Early: 1, Answered: early}
	}
	stamped := Span{19 * second, 20 * second}
	for _, tc := range []struct {
		name  string
		ev    Evidence
		heard Span
		exact mono.Time
		later bool
	}{
		{"the kernel cannot say for how long", Evidence{}, stamped, 0, false},
		{"bytes came, and the kernel cannot say when", Evidence{Received: 1}, stamped, 0, false},
		{"the kernel knows it exactly", silent(11*second + second/2), stamped, 19*second + second/2, false},
		{"the kernel counts from the arrival, the reaper from the end of a slow handler", silent(25 * second), stamped, 19 * second, false},
		{"bytes wait unread, as after a stall", Evidence{Found: Unread}, At(now), 0, true},
		{"bytes wait unread, and the kernel counts", Evidence{Found: Unread, Dated: true, Silent: 25 * second}, At(now), 0, true},
		{"bytes were read that the stamps have missed", silent(3 * second), Span{28*second - kernelStep, 28*second + kernelStep}, 0, true},
		{"a difference within the resolution of the kernel is none", silent(11*second - kernelStep/2), stamped, 20 * second, false},
		{"nor is a difference of just the resolution", silent(11*second - kernelStep), stamped, 20 * second, false},
		{"a nanosecond more is one", silent(11*second - kernelStep - 1), Span{20*second + 1, 20*second + 2*kernelStep + 1}, 0, true},
		{"bytes wait for lost ones", early(25*second, 3*second), Span{19 * second, 28*second + kernelStep}, 0, true},
		{"the same, after bytes that the stamps have missed", early(5*second, 3*second), Span{26*second - kernelStep, 28*second + kernelStep}, 0, true},
		{"the same, before the stamped ones", early(25*second, 24*second), stamped, 19 * second, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &Facts{Opened: At(second), Heard: stamped, Fresh: true, Missed: 2}
			require.Equal(t, tc.later, testLimits().Hear(f, &tc.ev, now))
			require.Equal(t, tc.heard, f.Heard)
			require.Equal(t, tc.exact, f.HeardAt)
			require.Equal(t, !tc.later && !(tc.ev.Dated && tc.ev.Received > 0), f.Fresh)
			require.Equal(t, tc.later, f.Missed == 0)
			require.Equal(t, tc.ev.Found == Unread, f.Unread)
		})
	}
}

// TestAnAnswerWithoutTheBytesThatCameInIsNotTrusted has the answer of gVisor: success, and zeros. A
// silence of zero would mean "heard just now", and no connection would ever be idle.
func TestAnAnswerWithoutTheBytesThatCameInIsNotTrusted(t *testing.T) {
	lim := testLimits()
	lim.Read = 60 * second
	f := &Facts{Opened: At(second), Heard: At(20 * second), Wrote: At(20 * second)}
	ev := Evidence{Dated: true, Step: kernelStep}
	require.False(t, lim.Hear(f, &ev, 80*second))
	require.False(t, ev.Dated, "for output neither")
	require.Equal(t, At(20*second), f.Heard)
	require.Zero(t, f.HeardAt)
	v := lim.Judge(f, neverAway, 80*second)
	require.Equal(t, Raise, v.Act)
	require.Equal(t, reap.ReadIdle, v.Reason)

	fresh := &Facts{Opened: At(second), Heard: At(20 * second), Fresh: true}
	ev = Evidence{Dated: true, Step: kernelStep, Silent: 70 * second}
	lim.Hear(fresh, &ev, 80*second)
	require.True(t, ev.Dated, "nothing came in, and the kernel says so")

	ev = Evidence{Dated: true, Step: kernelStep, Silent: 5 * second, Received: 1}
	require.True(t, lim.Hear(f, &ev, 80*second), "bytes that the stamps have missed")
	require.Equal(t, Span{75*second - kernelStep, 75*second + kernelStep}, f.Heard)
}

// TestReadIdleIsNeverEarly tries all combinations on a grid: an idle event needs a whole timeout of
// silence.
func TestReadIdleIsNeverEarly(t *testing.T) {
	const step, timeout = 100 * millisecond, second
	lim := testLimits()
	lim.Read = timeout
	for heard := mono.Time(step); heard < 20*step; heard += step {
		for noticed := mono.Time(0); noticed < 30*step; noticed += step {
			for now := heard; now < 50*step; now += step {
				for silent := time.Duration(0); silent <= now.Sub(0); silent += step {
					f := &Facts{Opened: At(0), Heard: Span{heard - step, heard}, Noticed: [IdleReasons]mono.Time{noticed}}
					lim.Hear(f, &Evidence{Dated: true, Step: kernelStep, Silent: silent, Received: 1}, now)
					v := lim.Judge(f, neverAway, now)
					if v.Act == Wait {
						if v.Next <= now {
							t.Fatalf("%+v at %v: the next judgement lies in the past: %+v", f, now, v)
						}
						continue
					}
					if now.Sub(f.Heard.To) < timeout {
						t.Fatalf("%+v at %v is early", f, now)
					}
					if p := lim.Report(v, f, now); p.Lasted < timeout || p.Late < 0 {
						t.Fatalf("%+v at %v with a silence of %v: %+v", f, now, silent, p)
					}
				}
			}
		}
	}
}

// checker calls CheckOutput as a loop does, with one counter.
func checker(t *testing.T, lim *Limits, f *Facts) func(now mono.Time, ev Evidence, output int) bool {
	t.Helper()
	var counter uint32
	return func(now mono.Time, ev Evidence, output int) bool {
		f.Output, ev.Step = output, kernelStep
		return lim.CheckOutput(f, &ev, &counter, now)
	}
}

func TestCheckOutput(t *testing.T) {
	lim := testLimits()
	lim.Output.Soft, lim.Output.SoftFor = 10, second
	f := &Facts{Opened: At(second), Wrote: At(second)}
	check := checker(t, lim, f)
	require.True(t, check(10*second, Evidence{Dated: true, Moved: 7, Quiet: second}, 0))
	require.Equal(t, Span{9*second - kernelStep, 9*second + kernelStep}, f.Wrote)
	require.False(t, check(20*second, Evidence{Dated: true, Moved: 7, Quiet: 11*second + 5*millisecond}, 0))
	require.Equal(t, mono.Time(9*second+kernelStep), f.Wrote.To, "no verdict is early")
	require.Equal(t, mono.Time(9*second-5*millisecond), f.WroteAt, "the kernel knows it exactly")
	require.False(t, check(21*second, Evidence{Dated: true, Moved: 7, Quiet: second, InFlight: true, Resent: true}, 0), "it was sent again")
	require.Equal(t, mono.Time(9*second+kernelStep), f.Wrote.To)
	require.Zero(t, f.StalledSince)
	require.True(t, check(22*second, Evidence{Dated: true, Moved: 7, Quiet: 0, InFlight: true}, 0), "sent, and not acknowledged yet")
	require.Equal(t, mono.Time(22*second+kernelStep), f.Wrote.To)
	f.Missed = 2
	check(23*second, Evidence{Dated: true, Moved: 8}, 0)
	require.Equal(t, 2, f.Missed, "the kernel of a peer that hangs takes something as well")
	check(24*second, Evidence{Dated: true, Moved: 9, Unsent: 100}, 0)
	require.Zero(t, f.Missed, "it takes what lies before the ping")
	f.Missed = 2
	check(25*second, Evidence{Dated: true, Moved: 9, Unsent: 100}, 0)
	require.Equal(t, 2, f.Missed, "nothing moves")
	check(26*second, Evidence{Dated: true, Moved: 10}, 1)
	require.Zero(t, f.Missed, "what lies before the ping is in the buffer of the loop")

	require.True(t, check(30*second, Evidence{Dated: true, Moved: 19, Quiet: 0, Queued: 5}, 11))
	require.Equal(t, mono.Time(30*second), f.StalledSince, "output waits")
	require.Equal(t, mono.Time(30*second), f.OverSince)
	require.False(t, check(40*second, Evidence{Dated: true, Moved: 19, Quiet: 0, Queued: 5}, 12))
	require.Equal(t, mono.Time(30*second), f.StalledSince, "and nothing moves, but for what is sent again")
	require.Equal(t, mono.Time(30*second), f.OverSince)
	require.True(t, check(50*second, Evidence{Dated: true, Moved: 20, Queued: 5}, 10))
	require.Equal(t, mono.Time(50*second), f.StalledSince, "a byte moves")
	require.Zero(t, f.OverSince, "at the limit is not above it")
	check(60*second, Evidence{Dated: true, Moved: 20, Queued: 0}, 10)
	require.Zero(t, f.StalledSince, "the kernel would take more: it is not the peer")

	lim.Output.Soft = 0
	check(70*second, Evidence{Dated: true, Moved: 20, Queued: 5}, 11)
	require.Zero(t, f.OverSince, "there is no soft limit")
	require.Zero(t, f.Large, "nothing is kept without a hard limit")
}

func TestAHighLimitAsksForNoFasterPeer(t *testing.T) {
	lim, now := &Limits{Output: Output{Hard: 64 << 20}}, 20*mono.Time(second)
	for acked, want := range map[uint64]mono.Time{LargePart: now, LargePart - 1: 1} {
		f := &Facts{Output: 100 << 20, Large: Large{Since: 1, Least: 100 << 20}}
		lim.CheckOutput(f, &Evidence{Dated: true, Counted: true, Acked: acked, Queued: 1}, new(uint32), now)
		require.Equal(t, want, f.Large.Since)
	}
}

// TestSentBytesCountThoughTheirAcknowledgementIsLost sends bytes that are retransmitted until an
// acknowledgement comes. A kernel that counts sent bytes distinguishes the two.
func TestSentBytesCountThoughTheirAcknowledgementIsLost(t *testing.T) {
	lim := testLimits()
	lim.Write = 2 * second
	f := &Facts{Opened: At(second), Wrote: At(second)}
	check := checker(t, lim, f)
	check(second, Evidence{Dated: true, Counted: true, Moved: 100}, 0)
	f.Wrote = At(second)

	lost := Evidence{Dated: true, Counted: true, Moved: 150, InFlight: true, Resent: true}
	lost.Quiet = 200 * millisecond // the retransmission
	require.True(t, check(3*second, lost, 0), "new bytes, although they are being retransmitted")
	sent := Span{2800*millisecond - kernelStep, 2800*millisecond + kernelStep}
	require.Equal(t, sent, f.Wrote)
	require.Equal(t, Wait, lim.Judge(f, neverAway, 3*second).Act)

	lost.Quiet = 100 * millisecond
	require.False(t, check(4*second, lost, 0), "only a retransmission")
	require.Equal(t, sent, f.Wrote)
	lost.Resent = false
	require.False(t, check(4500*millisecond, lost, 0), "the bytes in flight were counted before")
	require.Equal(t, sent, f.Wrote)
	v := lim.Judge(f, neverAway, 4800*millisecond+kernelStep)
	require.Equal(t, Raise, v.Act)
	require.Equal(t, reap.WriteIdle, v.Reason)
	require.Equal(t, mono.Time(4800*millisecond+kernelStep), v.Due)
}

// TestKernelsThatDoNotCountWhatTheySend has answers of Linux before 4.19, on which a retransmission
// looks like new bytes until they are acknowledged.
func TestKernelsThatDoNotCountWhatTheySend(t *testing.T) {
	f := &Facts{Opened: At(second), Wrote: At(second)}
	check := checker(t, testLimits(), f)
	check(second, Evidence{Dated: true, Moved: 100}, 0)
	require.False(t, check(2*second, Evidence{Dated: true, Moved: 100}, 0))
	require.False(t, check(3*second, Evidence{Dated: true, Moved: 100, Resent: true}, 0))
	require.False(t, check(4*second, Evidence{Dated: true, Moved: 100, InFlight: true, Resent: true}, 0))
	require.True(t, check(5*second, Evidence{Dated: true, Moved: 100, InFlight: true}, 0))
	require.True(t, check(6*second, Evidence{Dated: true, Moved: 150, InFlight: true, Resent: true}, 0), "acknowledged")
}

func TestCheckOutputWithoutCounters(t *testing.T) {
	lim := testLimits()
	for _, queued := range []int{-1, 0} { // unknown, and known to the kernel
		f := &Facts{Opened: At(second), Wrote: At(second)}
		var counter uint32
		check := func(now mono.Time, waits int) {
			ev := Evidence{Queued: queued}
			if f.Output = waits; queued == 0 {
				ev.Queued, f.Output = waits, 0
			}
			require.False(t, lim.CheckOutput(f, &ev, &counter, now))
		}
		check(10*second, 0)
		require.True(t, f.Blind)
		require.Zero(t, f.StalledSince)
		check(20*second, 5)
		require.Equal(t, mono.Time(20*second), f.StalledSince)
		check(25*second, 5)
		require.Equal(t, mono.Time(20*second), f.StalledSince)
		check(30*second, 6)
		require.Equal(t, mono.Time(30*second), f.StalledSince, "another amount waits: some may have been taken")
		check(40*second, 5)
		require.Equal(t, mono.Time(40*second), f.StalledSince, "less waits")
		check(50*second, 5)
		require.Equal(t, mono.Time(40*second), f.StalledSince)
		f.Heard = At(55 * second)
		check(56*second, 5)
		require.Equal(t, mono.Time(56*second), f.StalledSince, "the peer sends")
		check(57*second, 5)
		require.Equal(t, mono.Time(56*second), f.StalledSince, "it has sent nothing since")
		check(60*second, 0)
		require.Zero(t, f.StalledSince)
	}
}

func TestCountReceived(t *testing.T) {
	lim := testLimits()
	lim.Rate = Rate{BytesPerSecond: 10, Window: 2 * second, Grace: second}
	require.Equal(t, 20, lim.leastInWindow())
	f := &Facts{RatedSince: 11 * second}
	var counter uint32
	count := func(now mono.Time, received uint64) Verdict {
		lim.CountReceived(f, &Evidence{Dated: true, Received: received}, &counter, now)
		return lim.Judge(f, neverAway, now)
	}
	require.Equal(t, mono.Time(11*second), count(10*second, 1000).Next, "its window begins after the grace")
	require.Equal(t, mono.Time(13*second), count(11*second, 1005).Next)
	require.EqualValues(t, 1006, counter, "one more than the bytes")
	require.Equal(t, mono.Time(13*second), count(12*second, 1006).Next, "within the window nothing is decided")
	require.Equal(t, mono.Time(13*second), count(13*second-1, 1025).Next, "also if there are enough bytes")
	require.Equal(t, mono.Time(15*second), count(13*second, 1025).Next, "just enough: the next window")
	v := count(15*second, 1044)
	require.Equal(t, End, v.Act)
	require.Equal(t, Report{Limit: 2 * second, Lasted: 2 * second, Bytes: 19, Least: 20}, lim.Report(v, f, 15*second))
	require.Equal(t, Wait, count(20*second, 1<<33+1045).Act, "the counter wraps; a late judgement asks for no more")
	require.Zero(t, f.Taken, "of the new window")

	lim.CountReceived(f, &Evidence{Dated: true, Found: Unread, Received: 1<<33 + 1046}, &counter, 22*second)
	require.Equal(t, mono.Time(22*second), f.RatedSince, "what waits may be the end of the message")

	lim.CountReceived(f, &Evidence{}, &counter, 30*second)
	require.Zero(t, f.RatedSince, "the bytes are not counted")
	require.False(t, f.Counting)
	require.Equal(t, Wait, lim.Judge(f, neverAway, 30*second).Act)
}

// TestAWindowBeginsInTime judges before a window begins, and after its beginning has passed.
func TestAWindowBeginsInTime(t *testing.T) {
	lim := testLimits()
	lim.Rate = Rate{BytesPerSecond: 10, Window: 2 * second}
	f := &Facts{RatedSince: 11 * second}
	require.Equal(t, mono.Time(12*second).Add(lim.Tick), lim.Judge(f, neverAway, 12*second).Next, "it should have begun")
	var counter uint32
	lim.CountReceived(f, &Evidence{Dated: true}, &counter, 12*second)
	require.EqualValues(t, 1, counter, "0 would be none")
	wrapped, atWrap := Facts{RatedSince: 11 * second}, uint32(0)
	lim.CountReceived(&wrapped, &Evidence{Dated: true, Received: 1<<32 - 1}, &atWrap, 12*second)
	require.NotZero(t, atWrap, "also after 4 GiB")
	require.Equal(t, mono.Time(14*second), lim.Judge(f, neverAway, 12*second).Next)
}
