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

// outagesOf returns a list of outages, given by from and to in turn.
func outagesOf(bounds ...mono.Time) (all Outages) {
	for i := 0; i < len(bounds); i += 2 {
		all = add(all, bounds[i], bounds[i+1], 0)
	}
	return all
}

// lasting returns an outage of the given length between two instants.
func lasting(from, to mono.Time, length time.Duration) Outage {
	return Outage{From: from, To: to, Length: length}
}

// bare returns a list without what is known of outages that were merged.
func bare(all Outages) (list Outages) {
	for _, o := range all {
		list = append(list, lasting(o.From, o.To, o.Length))
	}
	return list
}

// add returns a list with one more outage, given by its bounds.
func add(all Outages, from, to, forget mono.Time) Outages {
	return all.Add(lasting(from, to, to.Sub(from)), forget)
}

// paused returns a server that was paused.
func paused(all Outages) *Away {
	away := NewAway(all, nil)
	return &away
}

// TestAnOverlapWithAMergedOutageIsUnknown adds an outage to one that was merged.
// TestOutagesAgainstATimeline has lists without a merged one.
func TestAnOverlapWithAMergedOutageIsUnknown(t *testing.T) {
	merged := Outages{lasting(0, 20, 18)}
	for _, tc := range []struct {
		name     string
		have     Outages
		from, to mono.Time
		want     Outage
	}{
		{"it may be what lies in the gaps", merged, 5, 15, lasting(0, 20, 20)},
		{"all of it", merged, 0, 20, lasting(0, 20, 20)},
		{"it is not known what lies in the gaps", merged, 15, 25, lasting(0, 25, 25)},
		{"the overlap is less than the gaps", Outages{lasting(0, 20, 5)}, 18, 25, lasting(0, 25, 12)},
	} {
		require.Equal(t, Outages{tc.want}, bare(add(tc.have, tc.from, tc.to, 0)), tc.name)
	}
}

// TestAFullListKeepsTheRecentPastExact has outages that are all as far apart.
func TestAFullListKeepsTheRecentPastExact(t *testing.T) {
	var all Outages
	at := mono.Time(0)
	for n := range 10 * maxOutages {
		at += 10
		all = add(all, at, at+2, 0)
		require.Len(t, all, min(n+1, maxOutages))
		for i, o := range all[max(len(all)-maxOutages/8, 0):] {
			require.Equal(t, lasting(o.From, o.From+2, 2), bare(Outages{o})[0], "outage %d of %d", i, n)
		}
		sum := time.Duration(0)
		for _, o := range all {
			sum += o.Length
		}
		require.EqualValues(t, 2*(n+1), sum)
	}
	for _, o := range all[:maxOutages/2] {
		require.Less(t, o.To.Sub(o.From), time.Duration(at-o.From)/4, "a span is short beside its age")
	}
}

// TestShortOutagesKeepNoDeadPeer has a server that was stopped for 250 ms again and again, long
// before the peer dies and ever after. docs/verdict.md has the figures.
func TestShortOutagesKeepNoDeadPeer(t *testing.T) {
	const stop = 250 * time.Millisecond
	for every, want := range map[time.Duration]float64{ // limits
		10 * time.Second: 1.1, 5 * time.Second: 1.2, time.Second: 1.7, 500 * time.Millisecond: 24.1,
	} {
		const limit = time.Minute
		lim := Limits{Grace: 2 * time.Minute, Resend: stop}
		var all Outages
		at := mono.Time(0)
		stopped := func() {
			all = add(all, at, at.Add(stop), at.Add(-MaxTimeouts*limit))
			at = at.Add(every)
		}
		for range 1000 {
			stopped()
		}
		heard := at.Add(-every / 2)
		due := heard.Add(limit)
		for at <= due {
			stopped()
			due = lim.putOff(deadline{heard, limit, heard.Add(limit)}, heard, paused(all))
		}
		require.InDelta(t, want, due.Sub(heard).Seconds()/limit.Seconds(), 0.1, "limits, every %v", every)
	}
}

// TestChancesAgainstATimeline has random outages, limits and graces.
func TestChancesAgainstATimeline(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	for n := range 20_000 {
		limit := time.Duration(8 + rng.IntN(60))
		lim := Limits{Grace: []time.Duration{-1, 4, 1000}[rng.IntN(3)]}
		since := mono.Time(rng.Int64N(int64(limit)))
		heard := since - mono.Time(rng.IntN(3))
		var list []mono.Time
		at, longest := mono.Time(0), 1+rng.IntN(int(limit)/3)
		for range rng.IntN(12) {
			at = at.Add(time.Duration(1 + rng.IntN(longest)))
			list = append(list, at, at.Add(time.Duration(1+rng.IntN(longest))))
			at = list[len(list)-1]
		}
		all := outagesOf(list...)
		want := dueBy(promise{since: since, length: limit}, all, nil, heard, lim.Grace)
		got := lim.putOff(deadline{since, limit, since.Add(limit)}, heard, paused(all))
		require.Equal(t, want, got, "seed %d, %d: limit %d since %d heard %d grace %d: %v", seed, n, limit, since, heard, lim.Grace, bare(all))
	}
}

// TestMergedOutagesKnowWhatWasSentAgain has two outages of a second, which are merged when the list
// is full: a segment that was lost in the first one is sent again within 1.25 s after it.
func TestMergedOutagesKnowWhatWasSentAgain(t *testing.T) {
	const long = mono.Time(time.Second)
	for gap, fromSecond := range map[time.Duration]bool{0: false, 1249 * time.Millisecond: false, 1250 * time.Millisecond: true, time.Minute: true} {
		second := long.Add(gap)
		all := outagesOf(0, long, second, second+long)
		for n := range mono.Time(maxOutages - 1) {
			all = add(all, (n+1)*1000*long, (n+1)*1000*long+long, 0)
		}
		require.LessOrEqual(t, len(all), maxOutages)
		require.Equal(t, second+long, all[0].To)
		require.Equal(t, fromSecond, all[0].lost() == second, "%v apart", gap)
	}
}

// TestOutagesAgainstATimeline adds random outages to a list and to a timeline of ticks.
func TestOutagesAgainstATimeline(t *testing.T) {
	const ticks, rounds = 400, 3000
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	exact, merged := 0, 0
	for range rounds {
		var all Outages
		var down [ticks]bool
		wasFull := false
		longest := 1 + rng.IntN(30)
		for range 1 + rng.IntN(60) {
			from := rng.IntN(ticks - longest)
			to, forget := from+1+rng.IntN(longest), rng.IntN(from+1)-100
			if wasFull { // a merged entry is forgotten later than its parts
				forget = -1
			}
			receiver := all
			before := slices.Clone(all)
			all = add(all, mono.Time(from), mono.Time(to), mono.Time(forget))
			if !slices.Equal(before, receiver) {
				t.Fatalf("seed %d: Add has changed its receiver from %v to %v", seed, before, receiver)
			}
			for _, run := range runsOf(down[:]) {
				if run.To <= mono.Time(forget) {
					clear(down[run.From:run.To])
				}
			}
			for i := from; i < to; i++ {
				down[i] = true
			}
			want := runsOf(down[:])
			wasFull = wasFull || len(want) > maxOutages
			if !wasFull {
				exact++
				if !slices.Equal(want, bare(all)) {
					t.Fatalf("seed %d: %v, want %v", seed, all, want)
				}
				continue
			}
			merged++
			checkMerged(t, seed, all, down[:])
		}
	}
	t.Logf("%d lists compared exactly, %d that were full", exact, merged)
}

// runsOf returns the outages of a timeline.
func runsOf(down []bool) (runs Outages) {
	for i, is := range down {
		switch {
		case !is:
		case i > 0 && down[i-1]:
			runs[len(runs)-1].To++
			runs[len(runs)-1].Length++
		default:
			runs = append(runs, lasting(mono.Time(i), mono.Time(i+1), 1))
		}
	}
	return runs
}

// checkMerged checks a list that was full once: each outage lies in one entry, no entry is shorter
// than the outages in it, and none is longer than its span.
func checkMerged(t *testing.T, seed uint64, all Outages, down []bool) {
	t.Helper()
	if len(all) > maxOutages {
		t.Fatalf("seed %d: %d outages", seed, len(all))
	}
	last := mono.Time(-1)
	for _, o := range all {
		if o.From <= last || o.To <= o.From || o.Length > o.To.Sub(o.From) {
			t.Fatalf("seed %d: %v in %v", seed, o, all)
		}
		last = o.To
	}
	for _, run := range runsOf(down) {
		in := slices.IndexFunc(all, func(o Outage) bool { return o.From <= run.From && run.To <= o.To })
		if in < 0 {
			t.Fatalf("seed %d: %v is not in %v", seed, run, all)
		}
	}
	for _, o := range all {
		within := time.Duration(0)
		for i := o.From; i < o.To; i++ {
			if down[i] {
				within++
			}
		}
		if o.Length < within {
			t.Fatalf("seed %d: %v is shorter than its outages, %v", seed, o, within)
		}
	}
}

func TestAPeerThatWasHeardNeedsNoChance(t *testing.T) {
	lim := Limits{Grace: 1000, Resend: 100}
	for heard, want := range map[mono.Time]mono.Time{79: 200, 80: 120, 81: 120} {
		due := lim.putOff(deadline{50, 50, 100}, heard, paused(outagesOf(60, 80)))
		require.Equal(t, want, due, "heard at %d", heard)
		bound := lim.bound(deadline{50, 50, 100}, heard, outagesOf(60, 80))
		require.Equal(t, heard < 80, bound > 50+MaxTimeouts*50, "nor is it kept for longer, if heard at %d", heard)
	}
}

// TestTheDeadAreClosedInTheEnd has a server that is stopped again and again, for ever.
func TestTheDeadAreClosedInTheEnd(t *testing.T) {
	const limit, years = 10 * time.Second, 20 * 365 * 24 * time.Hour // 24 times the years overflow
	for name, tc := range map[string]struct{ stop, run, want time.Duration }{
		"throttled":           {95 * time.Millisecond, 5 * time.Millisecond, 24*limit + 95*time.Millisecond},
		"stops that touch":    {limit / 2, 0, 24*limit + limit/2},
		"stops of a limit":    {limit, limit / 100, 24*limit + limit},
		"stops of two limits": {2 * limit, 2 * limit, 24*limit + 9*limit + 2*limit}, // nine stops
	} {
		lim := Limits{Grace: 2 * time.Minute, Resend: 250 * time.Millisecond}
		all, due := Outages(nil), mono.Time(limit)
		for at := mono.Time(second); at <= due && at < mono.Time(99*limit); at = at.Add(tc.stop + tc.run) {
			all = add(all, at, at.Add(tc.stop), 0)
			due = lim.putOff(deadline{0, limit, mono.Time(limit)}, 0, paused(all))
		}
		require.Equal(t, mono.Time(tc.want), due, name)
	}
	require.EqualValues(t, years+1, new(Limits).putOff(deadline{0, years, mono.Time(years)}, 0, paused(outagesOf(1, 2))))
}

// TestWithoutAGraceNoSilenceCounts has silences from before the grace was switched off.
func TestWithoutAGraceNoSilenceCounts(t *testing.T) {
	away := NewAway(nil, outagesOf(60, 80))
	away.Holds = []mono.Time{90}
	lim, f := testLimits(), &Facts{Heard: At(50), ArrivedAfter: 55}
	lim.Grace, lim.Hold = -1, time.Hour
	require.EqualValues(t, 100, lim.fair(reap.ReadIdle, deadline{50, 50, 100}, f, &away, 0))
}

// TestPutOff has what TestTheJudgeIsExplored has not: long outages, three in a row, merged ones,
// and silences. The gaps in a silence are outages of the server. They were once added to its grace.
func TestPutOff(t *testing.T) {
	const due, since = 100, 50 // a limit of 50
	for _, tc := range []struct {
		name           string
		server, silent Outages
		heard, want    mono.Time
	}{
		{"it began before the limit, and was long", outagesOf(0, 70), nil, -1, 146},
		{"three, and a chance after the first", outagesOf(90, 130, 176, 186, 190, 192), nil, 50, 214},
		{"one that was merged", Outages{lasting(60, 90, 10)}, nil, 90, 110},
		{"one that was merged, the limit began in its end", Outages{lasting(20, 55, 10)}, nil, 55, 105},
		{"one that was merged, the limit began in it", Outages{lasting(20, 65, 10)}, nil, 65, 110},
		{"a gap after the beginning", outagesOf(70, 120), Outages{lasting(60, 160, 50)}, 50, 266},
		{"a gap from the beginning", outagesOf(60, 110), Outages{lasting(60, 160, 50)}, 50, 266},
		{"a gap at the end", outagesOf(110, 160), Outages{lasting(60, 160, 50)}, 50, 266},
		{"heard since then", outagesOf(70, 120), Outages{lasting(60, 160, 50)}, 160, 200},
		{"heard since then, the deadline lies before the gap", outagesOf(110, 160), Outages{lasting(60, 160, 50)}, 160, 200},
		{"a gap after the silence", outagesOf(70, 120, 170, 180), Outages{lasting(60, 160, 50)}, 160, 210},
		{"a gap from within the silence until after it", outagesOf(70, 180), Outages{lasting(60, 160, 10)}, 180, 220},
		{"a gap from before the silence until within it", outagesOf(55, 100), Outages{lasting(60, 160, 100)}, 50, 271},
		{"a gap around the silence", outagesOf(55, 170), Outages{lasting(60, 160, 100)}, 170, 215},
		{"a merged gap, of which any part may lie in the silence", Outages{lasting(55, 100, 10)}, Outages{lasting(60, 160, 60)}, 160, 170},
		{"a gap before the silence", outagesOf(55, 58), Outages{lasting(60, 160, 100)}, 160, 203},
		{"a second silence that began after the deadline", nil, Outages{lasting(60, 80, 20), lasting(110, 140, 30)}, 140, 150},
		{"the silence does not count", outagesOf(70, 75), Outages{lasting(110, 160, 50)}, 160, 105},
	} {
		lim, away := Limits{Grace: 1000}, NewAway(tc.server, tc.silent)
		require.Equal(t, tc.want, lim.putOff(deadline{since, due - since, due}, tc.heard, &away), tc.name)
	}
	require.EqualValues(t, 120, new(Limits).putOff(deadline{since, due - since, due}, -1, paused(outagesOf(0, 70))), "a grace of 0")
}

// TestAWriteDoesNotEndAGrace is a regression test: all idle was early if the server had sent
// something to the peer.
func TestAWriteDoesNotEndAGrace(t *testing.T) {
	lim, f := testLimits(), testFacts()
	lim.All, lim.Grace, f.Wrote = 10*second, time.Hour, f.Heard
	from := f.Heard.To + second
	down := outagesOf(from, from+30*second, from+55*second, from+65*second)
	due := func() mono.Time {
		return lim.fair(reap.AllIdle, lim.deadline(reap.AllIdle, f), f, paused(down), 0)
	}
	silent := due()
	require.Equal(t, from+130*second+10*second/8, silent, "the second outage began before the chance was over")
	f.Wrote = At(from + 70*second)
	require.Equal(t, silent, due())
	f.Wrote = At(from + 125*second)
	require.Equal(t, from+135*second, due())
}

// TestNoOutagePutsOffTheHardLimit: it bounds memory.
func TestNoOutagePutsOffTheHardLimit(t *testing.T) {
	lim, f, down := testLimits(), testFacts(), outagesOf(0, 65*second)
	lim.Grace, lim.Hold, lim.Output.Hard, f.Output = time.Hour, time.Hour, 99, 100
	v := lim.Judge(f, &Away{Server: down, All: down, Loop: down, Holds: []mono.Time{1}}, 60*second)
	require.Equal(t, Verdict{Act: End, Reason: reap.OverLimit, Next: v.Next}, v)
}

func TestASilenceOfAGroupHoldsNoHandshake(t *testing.T) {
	lim, f := testLimits(), testFacts()
	lim.Handshake, lim.Grace, lim.Hold, f.Opened = 10*second, time.Hour, time.Hour, At(second)
	v := lim.Judge(f, &Away{Group: &Away{Holds: []mono.Time{2 * second}}}, 11*second)
	require.Equal(t, reap.NoHandshake, v.Reason)
}

func TestAHoldLastsOneMoreLimitLessThreeTicks(t *testing.T) {
	held := &Away{Holds: []mono.Time{20 * second, 20 * second, 1000 * second}}
	for _, tc := range []struct {
		name              string
		read, hold, grace time.Duration
		by                time.Duration
	}{
		{"the limit", 10 * second, time.Hour, time.Hour, 10*second - 300*time.Millisecond},
		{"Hold", 10 * second, 2 * second, time.Hour, 2 * second},
		{"Hold of 0", 10 * second, 0, 0, 0},
		{"three ticks", 300 * time.Millisecond, time.Hour, time.Hour, 0},
		{"less than three ticks", 200 * time.Millisecond, time.Hour, time.Hour, 0},
		{"switched off", 10 * second, time.Hour, -1, 0},
	} {
		lim, f := testLimits(), &Facts{Opened: At(second), Heard: At(20 * second)}
		lim.Hold, lim.Grace = tc.hold, tc.grace
		lim.Read, lim.Jitter, f.Random = tc.read/2, 1, 1 // jitter doubles it
		due := mono.Time(20 * second).Add(tc.read + tc.by)
		v := lim.Judge(f, held, due-1)
		require.Equal(t, Wait, v.Act, tc.name)
		require.Equal(t, due, v.Next, tc.name)
		require.Equal(t, tc.by > 0, v.PutOff, tc.name)
		v = lim.Judge(f, held, due)
		require.Equal(t, Verdict{Act: Raise, Reason: reap.ReadIdle, Due: due, Next: due.Add(lim.Horizon)}, v, tc.name)
	}
}

// TestAStopDoesNotEndAHold stops the server while the network is down. When it runs again, nothing
// can have been heard yet, and the hold goes on.
func TestAStopDoesNotEndAHold(t *testing.T) {
	lim, f := testLimits(), &Facts{Opened: At(second), Heard: At(20 * second)}
	lim.Read, lim.Hold, lim.Grace = 10*second, time.Hour, 2*time.Minute
	due := func(stops Outages) mono.Time {
		away := paused(stops)
		away.Holds = []mono.Time{20 * second}
		return lim.fair(reap.ReadIdle, lim.deadline(reap.ReadIdle, f), f, away, 0).Add(3 * lim.Tick)
	}
	for _, tc := range []struct {
		name     string
		from, to mono.Time
		want     mono.Time
	}{
		{"before the silence", 15 * second, 19 * second, 40 * second},
		{"at its beginning", 15 * second, 22 * second, 42 * second},
		{"after the deadline", 32 * second, 45 * second, 53 * second},
		{"at the end", 39 * second, 45 * second, 46 * second},
		{"after the end", 41 * second, 45 * second, 40 * second},
	} {
		require.Equal(t, tc.want, due(outagesOf(tc.from, tc.to)), tc.name)
	}
	var all Outages // the server runs a tenth of the time
	for from := mono.Time(31 * second); from < 2000*second; from += 10 * second {
		all = all.Add(Outage{From: from, To: from + 9*second, Length: 9 * second}, 0)
	}
	require.LessOrEqual(t, due(all), mono.Time(20*second).Add(MaxTimeouts*lim.Read+9*second+3*lim.Tick), "no dead peer is kept for ever")
}

// TestAHeldVerdictIsReviewed checks that a held verdict is judged often, because the hold may end
// long before its bound.
func TestAHeldVerdictIsReviewed(t *testing.T) {
	lim, f := testLimits(), &Facts{Opened: At(second), Heard: At(20 * second)}
	lim.Read, lim.Hold = 160*second, time.Hour
	v := lim.Judge(f, &Away{Holds: []mono.Time{20 * second}}, 180*second)
	require.Equal(t, Verdict{Due: Never, Next: 190 * second, PutOff: true}, v, "a sixteenth of the limit")
	v = lim.Judge(f, &Away{Holds: []mono.Time{20 * second}}, 180*second-1)
	require.Equal(t, Verdict{Due: Never, Next: 180 * second}, v, "nothing is held yet: the silence may be over by then")
	lim.Read = second
	v = lim.Judge(f, &Away{Holds: []mono.Time{20 * second}}, 21*second)
	require.Equal(t, mono.Time(21*second).Add(lim.Tick), v.Next, "at least a tick")
	lim.Grace = time.Hour
	v = lim.Judge(f, paused(outagesOf(20*second+second/2, 80*second)), 85*second)
	require.Equal(t, Verdict{Due: Never, Next: 86 * second, PutOff: true}, v, "after one limit: a byte may have ended the grace")
	next := lim.Judge(f, paused(outagesOf(20*second+second/2, 20*second+second*3/4)), 20*second+second*9/10).Next
	require.Equal(t, mono.Time(21*second+second/4), next, "nothing is held: a look before the deadline finds nothing")
	lim.Read, lim.Heartbeat, f.LastPing, f.Missed = 0, Heartbeat{Interval: second, Retry: 5 * second, MaxMissed: 1}, 21*second, 1
	require.Equal(t, v, lim.Judge(f, paused(outagesOf(20*second+second/2, 80*second)), 85*second), "then the next ping is due")
}

// TestLateIsCountedFromTheDeadlineAfterAnOutage has an outage of the loop.
func TestLateIsCountedFromTheDeadlineAfterAnOutage(t *testing.T) {
	lim, f := testLimits(), testFacts()
	limit(lim, reap.WriteStall, 90*second)
	away := &Away{Loop: outagesOf(50*second, 60*second)}
	require.Equal(t, Wait, lim.Judge(f, away, 100*second-1).Act)
	v := lim.Judge(f, away, 101*second)
	require.Equal(t, mono.Time(100*second), v.Due)
	require.Equal(t, Report{Limit: 50 * second, Lasted: 61 * second, Late: second}, lim.Report(v, f, 101*second))
}

// TestOverlappingOutagesOfTwoPartsAreBounded has silences of two groups of a connection that
// overlap in turn, each longer than the limit. Together they are no outage without an end.
func TestOverlappingOutagesOfTwoPartsAreBounded(t *testing.T) {
	const limit, length = time.Second, 1150 * time.Millisecond
	var all Outages
	at := mono.Time(0)
	for range 100 {
		all = all.AddApart(Outage{From: at, To: at.Add(length), Length: length})
		at = at.Add(time.Second)
	}
	require.Len(t, all, 1)
	require.LessOrEqual(t, all[0].beyond(0, limit), 100*(length-limit))
	same := all.AddApart(all[0])
	require.Equal(t, all, same, "one outage that both parts have counts once")
	for _, apart := range []Outage{lasting(-2, -1, 1), lasting(at+second, at+2*second, second)} {
		require.Equal(t, all.Add(apart, 0), all.AddApart(apart), "they do not overlap")
	}

	first := Outage{From: 0, To: mono.Time(length), Length: length}
	second := Outage{From: mono.Time(limit), To: mono.Time(limit + length), Length: length}
	require.Equal(t, Outages{first}.AddApart(second), Outages{second}.AddApart(first), "their order does not matter")
}
