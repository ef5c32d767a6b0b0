package idle

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const second = time.Second

// testLimits limits nothing yet.
func testLimits() *limits {
	return &limits{tick: 100 * time.Millisecond, horizon: time.Hour}
}

// testLife is of a connection of which something is known in every direction: what each kind counts from lies at another
// instant.
func testLife() *life {
	return &life{
		opened: at(10 * second), heard: at(20 * second), wrote: at(30 * second),
		stuck: 40 * second, over: 45 * second,
		rated: 50 * second, counting: true,
		beat: 55 * second, missed: 2,
		fresh: true, dice: 0.5,
	}
}

// limit sets the limit of a kind so that it is due at an instant.
func limit(lim *limits, k Kind, due time.Duration) {
	switch k {
	case ReadIdle:
		lim.Read = due - 20*second
	case WriteIdle:
		lim.Write = due - 30*second
	case AllIdle:
		lim.All = due - 30*second
	case NoFirstByte:
		lim.firstByte = due - 10*second
	case NoHandshake:
		lim.handshake = due - 10*second
	case WriteStall:
		lim.stall = due - 40*second
	case OverLimit:
		lim.output = OutputLimit{Soft: 99, SoftFor: due - 45*second}
	case SlowPeer:
		lim.rate = MinRate{BytesPerSecond: 1, Window: due - 50*second}
	case NoAnswer:
		lim.interval, lim.retry, lim.maxMissed = second, due-55*second, 2
	case TooOld:
		lim.age = due - 10*second
	case Drained:
		lim.drain = drain{began: due - 10*second, spread: 20 * second, deadline: 40 * second} // the dice say half of it
	}
}

// actOf is what a kind asks for.
func actOf(k Kind) act {
	if k.isIdle() {
		return raise
	}
	return end
}

func judged() []Kind { return Kinds()[:lastDue] }

func TestEachKindIsDueAtItsDeadlineAndNotBefore(t *testing.T) {
	const due = 90 * second
	for _, k := range judged() {
		t.Run(k.String(), func(t *testing.T) {
			lim := testLimits()
			limit(lim, k, due)
			v := lim.judge(testLife(), due-1)
			require.Equal(t, verdict{due: never, next: due}, v, "a nanosecond before it")
			v = lim.judge(testLife(), due)
			require.Equal(t, actOf(k), v.act)
			require.Equal(t, k, v.kind)
			require.Equal(t, due, v.due)
		})
	}
}

// TestEachPairOfKinds lets two limits meet: the earlier decides, also for a judge who comes when both have passed; at the same
// instant the first in the order; and a connection is looked at at the earlier.
func TestEachPairOfKinds(t *testing.T) {
	for _, a := range judged() {
		for _, b := range judged() {
			if a == b {
				continue
			}
			t.Run(fmt.Sprintf("%v, %v", a, b), func(t *testing.T) {
				const early, late = 90 * second, 95 * second
				lim := testLimits()
				limit(lim, a, early)
				limit(lim, b, late)
				require.Equal(t, early, lim.judge(testLife(), 80*second).next)
				for _, now := range []time.Duration{early, late - 1, late, 100 * second} {
					v := lim.judge(testLife(), now)
					require.Equal(t, a, v.kind, "judged at %v", now)
					require.Equal(t, early, v.due)
				}
				limit(lim, b, early)
				require.Equal(t, min(a, b), lim.judge(testLife(), late).kind)
			})
		}
	}
}

// TestEachKindInEachCondition says which kinds apply to a connection that is held, leaving, and so on.
func TestEachKindInEachCondition(t *testing.T) {
	const due = 90 * second
	all := map[Kind]bool{}
	for _, k := range judged() {
		all[k] = true
	}
	but := func(not ...Kind) map[Kind]bool {
		some := map[Kind]bool{}
		for k := range all {
			some[k] = true
		}
		for _, k := range not {
			delete(some, k)
		}
		return some
	}
	for name, tc := range map[string]struct {
		change func(*life)
		want   map[Kind]bool
	}{
		"plain":              {func(*life) {}, all},
		"held":               {func(f *life) { f.held = true }, but(ReadIdle, WriteIdle, AllIdle, Drained)},
		"heard":              {func(f *life) { f.fresh = false }, but(NoFirstByte)},
		"ready":              {func(f *life) { f.ready = true }, but(NoHandshake)},
		"no output waits":    {func(f *life) { f.stuck, f.over, f.output = 0, 0, 0 }, but(WriteStall, OverLimit)},
		"no message is open": {func(f *life) { f.rated, f.counting = 0, false }, but(SlowPeer)},
		"nobody sees writes": {func(f *life) { f.blind = true }, but(WriteIdle)},
		"excused":            {func(f *life) { f.excused = due + 1 }, but(NoHandshake)},
		"leaving":            {func(f *life) { f.leaving, f.beat = true, due+1 }, but(NoAnswer, TooOld)},
	} {
		for _, k := range judged() {
			t.Run(fmt.Sprintf("%s, %v", name, k), func(t *testing.T) {
				lim, f := testLimits(), testLife()
				limit(lim, k, due)
				tc.change(f)
				v := lim.judge(f, due)
				require.Equal(t, tc.want[k], v.act != wait, "%+v", v)
			})
		}
	}
}

func TestIdleEventsRepeatUntilThereIsActivity(t *testing.T) {
	for _, k := range []Kind{ReadIdle, WriteIdle, AllIdle} {
		t.Run(k.String(), func(t *testing.T) {
			lim, f := testLimits(), testLife()
			limit(lim, k, 90*second)
			timeout := lim.idle(k)
			v := lim.judge(f, 90*second)
			ev := lim.event(v, f, 90*second+50*time.Millisecond)
			require.Equal(t, Event{
				Kind: k, First: true, Timeout: timeout, Idle: timeout + 50*time.Millisecond, Late: 50 * time.Millisecond,
			}, ev)

			f.noticed[k-1] = 91 * second // rounded up
			require.Equal(t, wait, lim.judge(f, 91*second+timeout-1).act)
			v = lim.judge(f, 91*second+timeout)
			require.Equal(t, raise, v.act)
			ev = lim.event(v, f, 91*second+timeout)
			require.False(t, ev.First)
			require.Equal(t, second+2*timeout, ev.Idle, "over all events")
			require.Zero(t, ev.Late)

			f.heard, f.wrote = at(92*second), at(92*second)
			v = lim.judge(f, 92*second+timeout)
			require.Equal(t, raise, v.act)
			require.True(t, lim.event(v, f, 92*second+timeout).First, "active since")
		})
	}
}

func TestActivityInTheOtherDirection(t *testing.T) {
	lim := testLimits()
	lim.Read, lim.Write, lim.All = 60*second, 60*second, 60*second
	f := testLife()
	f.fresh = false
	f.heard, f.wrote = at(20*second), at(70*second)
	require.Equal(t, 80*second, lim.due(ReadIdle, f))
	require.Equal(t, 130*second, lim.due(WriteIdle, f))
	require.Equal(t, 130*second, lim.due(AllIdle, f))
	f.heard, f.wrote = f.wrote, f.heard
	require.Equal(t, 130*second, lim.due(ReadIdle, f))
	require.Equal(t, 80*second, lim.due(WriteIdle, f))
	require.Equal(t, 130*second, lim.due(AllIdle, f))
}

func TestJitterSpreadsIdleTimeoutsAndOnlyThose(t *testing.T) {
	for _, k := range judged() {
		lim, f := testLimits(), testLife()
		limit(lim, k, 90*second)
		lim.jitter = 0.5
		base := lim.due(k, f)
		if k.isIdle() {
			require.Greater(t, base, 90*second)
			f.dice = 0
			require.Equal(t, 90*second, lim.due(k, f), "never early")
			f.dice = 1
			require.Equal(t, 90*second+lim.idle(k)/2, lim.due(k, f))
			v := lim.judge(f, lim.due(k, f))
			require.Equal(t, lim.idle(k), lim.event(v, f, v.due).Timeout)
			require.Zero(t, lim.event(v, f, v.due).Late)
		} else {
			require.Equal(t, 90*second, base, "%v", k)
		}
	}
}

// TestHeartbeats is the case of gnet issue 383: silent for 60 seconds, then three pings 30 seconds apart, then the end.
func TestHeartbeats(t *testing.T) {
	lim := testLimits()
	lim.interval, lim.retry, lim.maxMissed = 60*second, 30*second, 3
	f := &life{opened: at(5 * second), heard: at(20 * second), ready: true}
	for _, step := range []struct {
		at  time.Duration
		act act
	}{{80 * second, ping}, {110 * second, ping}, {140 * second, ping}, {170 * second, end}} {
		require.Equal(t, wait, lim.judge(f, step.at-1).act)
		require.Equal(t, step.at, lim.judge(f, step.at-1).next)
		v := lim.judge(f, step.at)
		require.Equal(t, step.act, v.act)
		require.Equal(t, NoAnswer, v.kind)
		if step.act == end {
			require.Equal(t, &ReapError{Kind: NoAnswer, Limit: 150 * second, Lasted: 151 * second, Late: second},
				lim.reason(v, f, step.at+second))
		}
		f.beat, f.missed = step.at, f.missed+1
	}
	f.missed, f.heard = 0, at(165*second)
	require.Equal(t, 225*second, lim.judge(f, 170*second).next, "any byte is an answer")
	f.dice = 1
	require.Equal(t, 237*second, lim.judge(f, 170*second).next, "the first is asked for up to a fifth later")
}

func TestOnlyPongsAreAnswersIfAskedFor(t *testing.T) {
	lim := testLimits()
	lim.interval, lim.retry, lim.maxMissed, lim.pongs = 60*second, 30*second, 3, true
	f := &life{opened: at(5 * second), heard: at(64 * second), ready: true}
	require.Equal(t, 65*second, lim.due(NoAnswer, f), "from when it was opened, whatever came")
	f.alive(lim, 70*second)
	require.Equal(t, 130*second, lim.due(NoAnswer, f))
	f.beat, f.missed = 130*second, 1
	require.Equal(t, 160*second, lim.due(NoAnswer, f))
	f.alive(lim, 140*second)
	require.Equal(t, 200*second, lim.due(NoAnswer, f))
	require.Zero(t, f.missed)
}

func TestMaxAge(t *testing.T) {
	lim := testLimits()
	lim.age, lim.grace = 100*second, 5*second
	f := testLife()
	for dice, want := range map[float64]time.Duration{0: 100 * second, 0.5: 110 * second, 1: 120 * second} {
		f.dice = dice
		require.Equal(t, want, lim.due(TooOld, f), "a tenth less or more")
	}
	f.dice = 0.5
	v := lim.judge(f, 110*second)
	require.Equal(t, farewell, v.act)
	f.leaving, f.beat = true, 111*second
	require.Equal(t, wait, lim.judge(f, 116*second-1).act)
	v = lim.judge(f, 116*second)
	require.Equal(t, end, v.act)
	require.Equal(t, &ReapError{Kind: TooOld, Limit: 100 * second, Lasted: 106 * second}, lim.reason(v, f, 116*second))
	f.leaving, lim.grace = false, 0
	require.Equal(t, end, lim.judge(f, 110*second).act, "without a grace there is no farewell")
}

func TestReasons(t *testing.T) {
	const now = 91 * second
	full := func() *life {
		f := testLife()
		f.output = 100
		return f
	}
	for k, want := range map[Kind]ReapError{
		NoFirstByte: {Limit: 80 * second, Lasted: 81 * second},
		NoHandshake: {Limit: 80 * second, Lasted: 81 * second},
		WriteStall:  {Limit: 50 * second, Lasted: 51 * second},
		OverLimit:   {Limit: 45 * second, Lasted: 46 * second, Bytes: 100, LimitBytes: 99},
		SlowPeer:    {Limit: 40 * second, Lasted: 41 * second, LimitBytes: 40},
		TooOld:      {Limit: 80 * second, Lasted: 81 * second},
	} {
		lim := testLimits()
		limit(lim, k, 90*second)
		v := lim.judge(full(), now)
		want.Kind, want.Late = k, second
		require.Equal(t, &want, lim.reason(v, full(), now), "%v", k)
	}
	lim := testLimits()
	lim.output.Hard = 99
	v := lim.judge(full(), now)
	require.Equal(t, &ReapError{Kind: OverLimit, Bytes: 100, LimitBytes: 99}, lim.reason(v, full(), now))
	lim.output.Hard = 100
	require.Equal(t, wait, lim.judge(full(), now).act, "the limit itself is allowed")
}

func TestOutputIsLookedAtOftenEnough(t *testing.T) {
	for _, tc := range []struct {
		cfg  Config
		want time.Duration
	}{
		{Config{ReadTimeout: time.Minute}, 0},
		{Config{WriteStallTimeout: 60 * second}, 15 * second},
		{Config{WriteStallTimeout: second}, 250 * time.Millisecond},
		{Config{OutputLimit: OutputLimit{Hard: 1 << 20}}, second},
		{Config{OutputLimit: OutputLimit{Hard: 1 << 20, Soft: 1 << 10, SoftFor: 2 * second}}, 500 * time.Millisecond},
		{Config{OutputLimit: OutputLimit{Soft: 1 << 10, SoftFor: time.Minute}, WriteStallTimeout: 20 * second}, 5 * second},
	} {
		tc.cfg.Tick = 100 * time.Millisecond
		lim := newLimits(&tc.cfg, tc.cfg.timeouts(), time.Hour)
		require.Equal(t, tc.want, lim.poll)
		v := lim.judge(&life{opened: at(second), heard: at(second), wrote: at(second)}, 2*second)
		require.Equal(t, tc.want != 0, v.next == 2*second+tc.want || v.next < 2*second+tc.want, "%+v", v)
	}
}

func TestHear(t *testing.T) {
	const now = 31 * second
	silent := func(d time.Duration) evidence { return evidence{counted: true, silent: d} }
	stamped := span{19 * second, 20 * second}
	for _, tc := range []struct {
		name  string
		ev    evidence
		heard span
		exact time.Duration
		later bool
	}{
		{"the kernel cannot say for how long", evidence{}, stamped, 0, false},
		{"the kernel knows it exactly", silent(11*second + second/2), stamped, 19*second + second/2, false},
		{"the kernel counts from the arrival, the reaper from the end of a slow handler", silent(25 * second), stamped, 19 * second, false},
		{"bytes wait unread, as after a stall", evidence{found: unread}, at(now), 0, true},
		{"bytes wait unread, and the kernel counts", evidence{found: unread, counted: true, silent: 25 * second}, at(now), 0, true},
		{"bytes were read that the stamps have missed", silent(3 * second), span{28*second - kernelStep, 28*second + kernelStep}, 0, true},
		{"a difference within the resolution of the kernel is none", silent(11*second - kernelStep/2), stamped, 20 * second, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &life{opened: at(second), heard: stamped, fresh: true, missed: 2}
			require.Equal(t, tc.later, testLimits().hear(f, &tc.ev, now))
			require.Equal(t, tc.heard, f.heard)
			require.Equal(t, tc.exact, f.heardAt)
			require.Equal(t, !tc.later, f.fresh)
			require.Equal(t, tc.later, f.missed == 0)
		})
	}
}

// TestReadIdleIsNeverEarly tries everything on a grid: an idle event needs a whole timeout of silence, whatever is known.
func TestReadIdleIsNeverEarly(t *testing.T) {
	const step, timeout = 100 * time.Millisecond, second
	lim := testLimits()
	lim.Read = timeout
	for heard := step; heard < 20*step; heard += step {
		for noticed := time.Duration(0); noticed < 30*step; noticed += step {
			for now := heard; now < 50*step; now += step {
				for silent := time.Duration(0); silent <= now; silent += step {
					f := &life{opened: at(0), heard: span{heard - step, heard}, noticed: [idleKinds]time.Duration{noticed}}
					lim.hear(f, &evidence{counted: true, silent: silent}, now)
					v := lim.judge(f, now)
					if v.act == wait {
						if v.next <= now {
							t.Fatalf("%+v at %v: the next look lies in the past: %+v", f, now, v)
						}
						continue
					}
					if now-f.heard.to < timeout {
						t.Fatalf("%+v at %v is early", f, now)
					}
					if ev := lim.event(v, f, now); ev.Idle < timeout || ev.Late < 0 {
						t.Fatalf("%+v at %v with a silence of %v: %+v", f, now, silent, ev)
					}
				}
			}
		}
	}
}

func TestAHandshakeIsExcusedOnlyWhileTheServerIsLate(t *testing.T) {
	lim := testLimits()
	lim.handshake = 10 * second
	waiting := evidence{found: unread}
	for _, tc := range []struct {
		late time.Duration
		want bool
	}{{0, false}, {2 * lim.tick, false}, {3 * lim.tick, true}, {10 * second, true}, {10*second + 1, false}} {
		f := &life{opened: at(5 * second)}
		now := 15*second + tc.late
		require.Equal(t, end, lim.judge(f, now).act)
		lim.hear(f, &waiting, now)
		require.Equal(t, tc.want, lim.judge(f, now).act == wait, "late by %v", tc.late)
		f = &life{opened: at(5 * second)}
		lim.hear(f, &evidence{counted: true, silent: 0}, now)
		require.Equal(t, end, lim.judge(f, now).act, "no bytes wait: the peer is slow")
		lim.hear(f, &evidence{found: unread, counted: true, silent: tc.late + second}, now)
		require.Equal(t, wait, lim.judge(f, now).act, "what waits came in time")
	}
}

func TestLook(t *testing.T) {
	lim := testLimits()
	lim.output.Soft, lim.output.SoftFor = 10, second
	f := &life{opened: at(second), wrote: at(second)}
	var counter uint32
	look := func(now time.Duration, ev evidence, output int) bool {
		f.output = output
		return lim.look(f, &ev, &counter, now)
	}
	require.True(t, look(10*second, evidence{counted: true, moved: 7, quiet: second}, 0))
	require.Equal(t, span{9*second - kernelStep, 9*second + kernelStep}, f.wrote)
	require.False(t, look(20*second, evidence{counted: true, moved: 7, quiet: 11*second + 5*time.Millisecond}, 0))
	require.Equal(t, 9*second+kernelStep, f.wrote.to, "no verdict is early")
	require.Equal(t, 9*second-5*time.Millisecond, f.wroteAt, "the kernel knows it exactly")
	require.False(t, look(21*second, evidence{counted: true, moved: 7, quiet: second, inFlight: true, again: true}, 0), "it was sent again")
	require.Equal(t, 9*second+kernelStep, f.wrote.to)
	require.Zero(t, f.stuck)
	require.True(t, look(22*second, evidence{counted: true, moved: 7, quiet: 0, inFlight: true}, 0), "sent, and not acknowledged yet")
	require.Equal(t, 22*second+kernelStep, f.wrote.to)
	f.missed = 2
	look(23*second, evidence{counted: true, moved: 8}, 0)
	require.Equal(t, 2, f.missed, "the kernel of a peer that hangs takes something as well")
	look(24*second, evidence{counted: true, moved: 9, unsent: 100}, 0)
	require.Zero(t, f.missed, "it takes what lies before the ping")

	require.True(t, look(30*second, evidence{counted: true, moved: 19, quiet: 0, queued: 5}, 11))
	require.Equal(t, 30*second, f.stuck, "output waits")
	require.Equal(t, 30*second, f.over)
	require.False(t, look(40*second, evidence{counted: true, moved: 19, quiet: 0, queued: 5}, 12))
	require.Equal(t, 30*second, f.stuck, "and nothing moves, but for what is sent again")
	require.Equal(t, 30*second, f.over)
	require.True(t, look(50*second, evidence{counted: true, moved: 20, queued: 5}, 10))
	require.Equal(t, 50*second, f.stuck, "a byte moves")
	require.Zero(t, f.over, "at the limit is not above it")
	look(60*second, evidence{counted: true, moved: 20, queued: 0}, 10)
	require.Zero(t, f.stuck, "the kernel would take more: it is not the peer")
}

func TestLookWithoutCounters(t *testing.T) {
	lim := testLimits()
	for _, queued := range []int{-1, 0} { // not known, and known to the kernel
		f := &life{opened: at(second), wrote: at(second)}
		var counter uint32
		look := func(now time.Duration, waits int) {
			ev := evidence{queued: queued}
			if f.output = waits; queued == 0 {
				ev.queued, f.output = waits, 0
			}
			require.False(t, lim.look(f, &ev, &counter, now))
		}
		look(10*second, 0)
		require.True(t, f.blind)
		require.Zero(t, f.stuck)
		look(20*second, 5)
		require.Equal(t, 20*second, f.stuck)
		look(25*second, 5)
		require.Equal(t, 20*second, f.stuck)
		look(30*second, 6)
		require.Equal(t, 30*second, f.stuck, "another amount waits: some may have been taken")
		look(40*second, 5)
		require.Equal(t, 40*second, f.stuck, "less waits")
		look(50*second, 5)
		require.Equal(t, 40*second, f.stuck)
		f.heard = at(55 * second)
		look(56*second, 5)
		require.Equal(t, 56*second, f.stuck, "it speaks")
		look(60*second, 0)
		require.Zero(t, f.stuck)
	}
}

func TestCount(t *testing.T) {
	lim := testLimits()
	lim.rate = MinRate{BytesPerSecond: 10, Window: 2 * second, Grace: second}
	require.Equal(t, 20, lim.leastInWindow())
	f := &life{rated: 11 * second}
	var counter uint32
	count := func(now time.Duration, received uint64) verdict {
		lim.count(f, &evidence{counted: true, received: received}, &counter, now)
		return lim.judge(f, now)
	}
	require.Equal(t, 11*second, count(10*second, 1000).next, "its window begins after the grace")
	require.Equal(t, 13*second, count(11*second, 1005).next)
	require.EqualValues(t, 1005, counter)
	require.Equal(t, 13*second, count(12*second, 1006).next, "within the window nothing is decided")
	require.Equal(t, 15*second, count(13*second, 1025).next, "just enough: the next window")
	v := count(15*second, 1044)
	require.Equal(t, end, v.act)
	require.Equal(t, &ReapError{Kind: SlowPeer, Limit: 2 * second, Lasted: 2 * second, Bytes: 19, LimitBytes: 20},
		lim.reason(v, f, 15*second))
	require.Equal(t, wait, count(20*second, 1<<33+1045).act, "the counter wraps; a judge who is late asks for no more")

	lim.count(f, &evidence{}, &counter, 30*second)
	require.Zero(t, f.rated, "nobody counts")
	require.Equal(t, wait, lim.judge(f, 30*second).act)
}

func TestAConnectionWithNothingDueSoonIsLeftAlone(t *testing.T) {
	for _, cfg := range []Config{
		{MaxAge: 24 * time.Hour}, {HandshakeTimeout: time.Minute}, {ReadTimeout: time.Millisecond}, {Liveness: time.Minute, ReadTimeout: time.Hour},
	} {
		cfg, err := cfg.check(0)
		require.NoError(t, err)
		set := newSettings(cfg, 1, overlay{})
		v := set.limits.judge(&life{opened: at(second), heard: at(second), wrote: at(second), ready: true, held: true}, 2*second)
		require.GreaterOrEqual(t, v.next-2*second, minMemory*cfg.Tick, "%+v", cfg)
	}
}

func TestDrain(t *testing.T) {
	lim := testLimits()
	lim.drain = drain{began: 100 * second, spread: 10 * second, deadline: 30 * second}
	for _, tc := range []struct {
		name string
		f    life
		due  time.Duration
	}{
		{"idle", life{heard: at(20 * second), dice: 0.5}, 105 * second},
		{"idle, and the first", life{heard: at(20 * second)}, 100 * second},
		{"active before its turn", life{heard: at(103 * second), dice: 0.5}, 105 * second},
		{"active at its turn", life{heard: at(104*second + 1), dice: 0.5}, 120 * second},
		{"active after its turn", life{heard: at(110 * second), dice: 0.25}, 115 * second},
		{"held", life{heard: at(20 * second), held: true}, 130 * second},
		{"its output waits", life{heard: at(20 * second), output: 1}, 130 * second},
	} {
		require.Equal(t, tc.due, lim.due(Drained, &tc.f), tc.name)
	}
	waits := life{opened: at(20 * second), heard: at(20 * second), wrote: at(20 * second), output: 1}
	v := lim.judge(&waits, 110*second)
	require.Equal(t, wait, v.act)
	require.Equal(t, 110*second+outputLook, v.next, "it may go as soon as its output has gone")
}

func TestSqueeze(t *testing.T) {
	for _, tc := range []struct {
		by               float64
		least, own, want time.Duration
	}{
		{0, 5 * second, 60 * second, 60 * second},
		{0.5, 10 * second, 60 * second, 35 * second},
		{1, 10 * second, 60 * second, 10 * second},
		{1, 10 * second, 8 * second, 8 * second},
		{1, 0, 60 * second, 100 * time.Millisecond}, // a tick
		{0.5, 10 * second, 0, 0},
	} {
		set := newSettings(Config{Tick: 100 * time.Millisecond, ReadTimeout: tc.own}, 1, overlay{squeeze: squeeze{tc.by, tc.least}})
		require.Equal(t, tc.want, set.limits.Read, "%+v", tc)
		require.Equal(t, tc.own, set.limits.own.Read)
	}
}
