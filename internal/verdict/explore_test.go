package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/reap"
)

// The tests of this file explore the judge exhaustively on a small grid: one tick is one
// nanosecond, limits are a few ticks long, and each instant lies within some twenty ticks. The
// oracle counts the ticks of the contract one by one. It shares no code with the judge.

// exploreUntil is the last tick that is judged.
const exploreUntil = 40

// A promise is the contract of one reason for a connection.
type promise struct {
	on     bool
	since  mono.Time
	length time.Duration
	// The last byte of the peer, if the limit counts from a later write; or 0.
	read         mono.Time
	hold         time.Duration // the longest hold, plus three ticks; 0 is length
	server, loop bool          // the peer needs the server, its loop, to keep the limit
	unread       bool          // put off while bytes wait unread
	at           mono.Time
	fixed        bool // the deadline is at, and does not depend on since and length
	act          Act
}

// promised returns the contract of a reason.
func promised(r Reason, lim *Limits, f *Facts) (p promise) {
	switch r {
	case reap.ReadIdle:
		p = promise{on: lim.Read > 0 && !f.Held, since: f.Heard.To, length: lim.Read, server: true, act: Raise}
	case reap.WriteIdle:
		p = promise{on: lim.Write > 0 && !f.Held && !f.Blind, since: f.Wrote.To, length: lim.Write, act: Raise}
	case reap.AllIdle:
		p = promise{on: lim.All > 0 && !f.Held, since: max(f.Heard.To, f.Wrote.To), length: lim.All, server: true, act: Raise}
	case reap.NoFirstByte:
		p = promise{on: lim.FirstByte > 0 && f.Fresh, since: f.Opened.To, length: lim.FirstByte, server: true, act: End}
	case reap.NoHandshake:
		p = promise{on: lim.Handshake > 0 && !f.Ready, since: f.Opened.To, length: lim.Handshake,
			server: true, loop: true, unread: f.Unread, act: End}
	case reap.WriteStall:
		p = promise{on: lim.Stall > 0 && f.StalledSince > 0, since: f.StalledSince, length: lim.Stall, server: true, loop: true, act: End}
	case reap.OverLimit:
		p = promise{on: lim.Output.Soft > 0 && f.OverSince > 0, since: f.OverSince, length: lim.Output.SoftFor,
			server: true, loop: true, act: End}
		if lim.Output.Hard > 0 && f.Output > lim.Output.Hard {
			p = promise{on: true, fixed: true, at: 0, act: End}
		}
	case reap.BelowMinRate:
		p = promise{on: lim.Rate.Window > 0 && f.Counting, since: f.RatedSince, length: lim.Rate.Window, server: true, loop: true, act: End}
	case reap.HeartbeatTimeout:
		h := lim.Heartbeat
		p = promise{on: h.Interval > 0 && !f.Leaving, since: f.LastPing, length: h.Retry, server: true, act: End}
		p.hold = h.Interval + time.Duration(h.MaxMissed)*h.Retry
		if f.Missed < h.MaxMissed {
			p.server, p.act = false, Ping
		}
		if f.Missed == 0 {
			p.since, p.length = f.Heard.To, h.Interval
			if f.Heard.To <= f.LastPing.Add(-lim.Tick) {
				p.fixed, p.at = true, max(f.Heard.To.Add(h.Interval), f.LastPing.Add(h.Retry))
			}
		}
	case reap.HalfClosed:
		p = promise{on: lim.HalfClosed > 0 && f.EndedSince > 0, since: f.EndedSince, length: lim.HalfClosed, server: true, act: End}
	case reap.MaxAge: // Random is a half, which neither lengthens nor shortens it
		p = promise{on: lim.Age > 0, since: f.Opened.To, length: lim.Age, act: End}
		switch {
		case f.Leaving:
			p.since, p.length = f.LastPing, lim.AgeGrace
		case lim.AgeGrace > 0:
			p.act = Farewell
		}
	case reap.Drained:
		d := lim.Drain
		p = promise{on: d.Deadline > 0, fixed: true, at: d.Began.Add(d.Spread / 2), act: End}
		switch {
		case f.Held || f.Output > 0:
			p.at = d.Began.Add(d.Deadline)
		case max(f.Heard.To, f.Wrote.To)+second > p.at:
			p.at = d.Began.Add(d.Spread + (d.Deadline-d.Spread)/2)
		}
	}
	if IsIdle(r) {
		p.since = max(p.since, f.Noticed[r-1])
	}
	if r == reap.AllIdle {
		p.read = max(f.Heard.To, f.Noticed[r-1])
	}
	return p
}

// covers reports whether an instant lies in an outage.
func covers(all Outages, at mono.Time) bool {
	for _, o := range all {
		if o.From <= at && at < o.To {
			return true
		}
	}
	return false
}

// dueBy returns the first tick at which the contract allows the verdict, or Never. It counts the
// ticks one by one. A tick of an outage does not count. A tick in which the loop was blocked does
// not count for the limit, for at most as many ticks as the limit has. At the end of an outage, a
// peer that was not heard since gets as many ticks without an outage as have passed since its first
// segment may have been lost, at most grace, and an eighth of the limit more. If only ticks of the
// eighth were left before the outage, it gets these.
func dueBy(p promise, all, loop Outages, heard mono.Time, grace time.Duration) mono.Time {
	left, graceLeft, eighthLeft, blockedLeft := p.length, time.Duration(0), time.Duration(0), p.length
	passed := false   // the limit, not the grace
	onlyRest := false // before the outage, of the eighth
	lost := Never     // the first segment since the last time of grace
	for now := range mono.Time(1000) {
		wasDown, down := now > 0 && covers(all, now-1), covers(all, now)
		if now > 0 && !wasDown && graceLeft <= 0 { // it has had its time
			lost = Never
		}
		if down && !wasDown {
			onlyRest = now >= p.since && left <= 0 && graceLeft <= 0 && eighthLeft > 0
		}
		switch {
		case down:
			lost = min(lost, now)
		case wasDown && heard < now && grace >= 0 && !onlyRest:
			graceLeft, eighthLeft = min(now.Sub(lost), grace), p.length/8
		}
		blocked := !passed && !down && blockedLeft > 0 && covers(loop, now)
		if now >= p.since && left <= 0 && !down && !blocked {
			if passed = true; graceLeft <= 0 && eighthLeft <= 0 {
				return now
			}
		}
		switch {
		case down:
			continue
		case now >= p.since && blocked:
			blockedLeft--
		case now >= p.since:
			left--
		}
		if graceLeft > 0 {
			graceLeft--
		} else {
			eighthLeft--
		}
	}
	return Never
}

// allowed returns the first tick at which the contract allows the verdict, without regard to bytes
// that wait unread.
func allowed(p promise, lim *Limits, f *Facts, away *Away) mono.Time {
	switch {
	case !p.on:
		return Never
	case p.fixed:
		return p.at
	case !p.server:
		return p.since.Add(p.length)
	}
	heard := f.Heard.From - 2 // a byte read within two ticks of an outage may have waited during it
	if f.ArrivedAfter > 0 {
		heard = f.ArrivedAfter
	}
	due := dueBy(p, away.Server, nil, heard, lim.Grace)
	if p.read != 0 { // no byte came for that time, and none was sent
		read := p
		read.since = p.read
		due = max(due, dueBy(read, away.Server, nil, heard, lim.Grace))
	}
	if len(away.Holds) > 0 && away.Holds[0] <= due && lim.Grace >= 0 {
		end := away.Holds[0].Add(2*cmp.Or(p.hold, p.length) - 3)
		for at := away.Holds[0]; at <= end; at++ {
			if slices.ContainsFunc(away.Server, func(o Outage) bool { return o.covers(at) }) {
				end++
			}
		}
		due = max(due, min(end, due.Add(lim.Hold)))
	}
	if !p.loop {
		return due
	}
	byLoop := dueBy(p, away.Server, away.Loop, heard, lim.Grace)
	for _, o := range away.Loop { // the loop was blocked when the limit was reached
		if at := p.since.Add(p.length); o.From <= at && at < o.To && !covers(away.Server, at) {
			again := promise{since: o.To, length: min(o.Length, p.length)}
			byLoop = max(byLoop, dueBy(again, away.Server, nil, heard, lim.Grace))
		}
	}
	return max(due, byLoop)
}

// exploreLimits returns limits of one reason in several lengths.
func exploreLimits(r Reason, lengths ...time.Duration) (all []func(*Limits)) {
	for _, d := range lengths {
		set := map[Reason]func(*Limits){
			reap.ReadIdle:         func(lim *Limits) { lim.Read = d },
			reap.WriteIdle:        func(lim *Limits) { lim.Write = d },
			reap.AllIdle:          func(lim *Limits) { lim.All = d },
			reap.NoFirstByte:      func(lim *Limits) { lim.FirstByte = d },
			reap.NoHandshake:      func(lim *Limits) { lim.Handshake = d },
			reap.WriteStall:       func(lim *Limits) { lim.Stall = d },
			reap.OverLimit:        func(lim *Limits) { lim.Output.Soft, lim.Output.SoftFor = 1, d },
			reap.BelowMinRate:     func(lim *Limits) { lim.Rate = Rate{BytesPerSecond: 1, Window: d} },
			reap.HeartbeatTimeout: func(lim *Limits) { lim.Heartbeat = Heartbeat{Interval: d + 1, Retry: d, MaxMissed: 2} },
			reap.HalfClosed:       func(lim *Limits) { lim.HalfClosed = d },
			reap.MaxAge:           func(lim *Limits) { lim.Age, lim.AgeGrace = 2*d, d-4 },
			reap.Drained:          func(lim *Limits) { lim.Drain = Drain{Began: mono.Time(d), Spread: 6, Deadline: 12} },
		}
		all = append(all, set[r])
	}
	return all
}

// exploreFacts returns connections: every small instant at which the peer was heard and written to,
// and every condition.
func exploreFacts() (all []Facts) {
	base := Facts{
		Opened: At(1), Heard: Span{3, 4}, Wrote: At(5), StalledSince: 4, OverSince: 6, RatedSince: 3, Counting: true,
		LastPing: 6, Missed: 2, EndedSince: 5, Fresh: true, Random: 0.5,
	}
	add := func(changes ...func(*Facts)) {
		f := base
		for _, change := range changes {
			change(&f)
		}
		all = append(all, f)
	}
	for _, heard := range []Span{{1, 1}, {3, 4}, {7, 9}} {
		for _, wrote := range []mono.Time{1, 8} {
			add(func(f *Facts) { f.Heard, f.Wrote = heard, At(wrote) })
		}
	}
	add(func(f *Facts) { f.HeardAt, f.ArrivedAfter, f.Heard = 7, 5, Span{4, 8} })
	add(func(f *Facts) { f.Noticed = [IdleReasons]mono.Time{9, 10, 11} })
	add(func(f *Facts) { f.Held = true })
	add(func(f *Facts) { f.Unread, f.Fresh = true, false })
	add(func(f *Facts) { f.Missed = 0 })
	add(func(f *Facts) { f.Missed = 1 })
	add(func(f *Facts) { f.Leaving = true })
	add(func(f *Facts) { f.Ready, f.Fresh, f.Blind = true, false, true })
	add(func(f *Facts) { f.StalledSince, f.OverSince, f.Output = 9, 11, 2 })
	add(func(f *Facts) { f.StalledSince, f.OverSince = 0, 0 })
	add(func(f *Facts) { f.RatedSince, f.Counting = 0, false })
	add(func(f *Facts) { f.Counting = false })
	add(func(f *Facts) { f.EndedSince = 0 })
	return all
}

// exploreAways returns servers without an outage, with each single outage and with pairs, each with
// and without a blocked loop and a hold.
func exploreAways() (all []Away) {
	lists := []Outages{nil}
	for from := mono.Time(0); from <= 12; from += 2 {
		for _, length := range []mono.Time{2, 7} {
			lists = append(lists, outagesOf(from, from+length))
		}
	}
	for _, first := range []Outage{lasting(0, 1, 1), lasting(0, 6, 6), lasting(3, 5, 2), lasting(5, 12, 7)} {
		for _, pause := range []mono.Time{1, 4} {
			for _, length := range []mono.Time{1, 5} {
				second := first.To + pause
				lists = append(lists, outagesOf(first.From, first.To, second, second+length))
			}
		}
	}
	for _, server := range lists {
		for _, loop := range []Outages{server, add(server, 5, 8, 0), add(server, 7, 30, 0)} {
			for _, holds := range [][]mono.Time{nil, {6}, {40}} {
				away := paused(server)
				away.Loop, away.Holds = loop, holds
				all = append(all, *away)
			}
		}
	}
	return all
}

// TestTheJudgeIsExplored judges every combination of one or two limits, connection and server at
// every tick, and compares with the oracle. A judgement
//   - acts when the contract allows it, and not a tick before or after,
//   - has the earliest deadline as its reason, however late it is, and
//   - is repeated in the future, and not after the first tick at which it would be another.
func TestTheJudgeIsExplored(t *testing.T) {
	facts, aways := exploreFacts(), exploreAways()
	var combinations, judgements atomic.Int64
	began := time.Now()
	lengthsA, lengthsB := []time.Duration{5, 8}, []time.Duration{4, 7}
	if !needs.IsLong() {
		lengthsA = lengthsA[:1]
	}
	t.Run("pairs", func(t *testing.T) {
		for a := First; a <= LastDue; a++ {
			t.Run(a.Error(), func(t *testing.T) {
				t.Parallel()
				var combined, judged int64
				for b := a; b <= LastDue; b++ {
					for i, setA := range exploreLimits(a, lengthsA...) {
						for j, setB := range exploreLimits(b, lengthsB...) {
							lim := &Limits{Tick: 1, Horizon: 1000, Hold: 1000, Grace: 1000}
							if (i+j)%2 == 1 { // each bound with each reason
								lim.Hold, lim.Grace = 3, 2
							}
							if setA(lim); b != a {
								setB(lim)
							} else if j == 1 {
								lim.Grace = -1
							}
							for k := range facts {
								for n := range aways {
									explore(t, lim, &facts[k], &aways[n], a, b)
									combined++
									judged += exploreUntil
								}
							}
						}
					}
				}
				combinations.Add(combined)
				judgements.Add(judged)
			})
		}
	})
	t.Logf("%d combinations, %d judgements in %v", combinations.Load(), judgements.Load(), time.Since(began))
}

func explore(t *testing.T, lim *Limits, f *Facts, away *Away, reasons ...Reason) {
	earliest, reason := Never, Reason(0)
	var deferred mono.Time // of the handshake: the deadline that is put off while bytes wait
	var acts [LastDue + 1]Act
	for _, r := range reasons {
		p := promised(r, lim, f)
		due := allowed(p, lim, f, away)
		acts[r] = p.act
		if p.unread && due != Never {
			deferred = due
			due = due.Add(p.length)
		}
		if due < earliest || due == earliest && due != Never && r < reason {
			earliest, reason = due, r
		}
	}
	for now := mono.Time(1); now <= exploreUntil; now++ {
		v := lim.Judge(f, away, now)
		fail := func(msg string) {
			t.Helper()
			t.Fatalf("%s: at tick %d, due at %d by %v: %+v\n%+v\n%+v\n%+v", msg, now, earliest, reason, v, lim, f, away)
		}
		switch {
		case now < earliest && v.Act != Wait:
			fail("early")
		case now < earliest && v.Next <= now:
			fail("the next judgement is not in the future")
		case now < earliest && v.Next > earliest:
			fail("the next judgement comes too late")
		case now < earliest && deferred != 0 && now >= deferred && v.Next > now.Add(lim.Tick):
			fail("the bytes that wait may be read at the next tick")
		case now < earliest && v.Next > now.Add(lim.Horizon):
			fail("the next judgement lies after the horizon")
		case now >= earliest && v.Act != acts[reason]:
			fail("not closed")
		case now >= earliest && (v.Reason != reason || v.Due != earliest):
			fail("another reason or deadline")
		case now >= earliest && v.PutOff:
			fail("not put off")
		}
	}
}

// TestEveryConnectionIsJudgedInTime simulates a server. It judges a connection at the instant that
// the last judgement has named, or at the end of an outage in which it was stopped, and it learns
// of an outage at its end. It acts at the tick that the contract names, although it does not know
// outages in advance.
func TestEveryConnectionIsJudgedInTime(t *testing.T) {
	facts, lives := exploreFacts(), 0
	for r := First; r <= LastDue; r++ {
		for _, set := range exploreLimits(r, 5, 8) {
			for _, grace := range []time.Duration{-1, 2, 1000} {
				lim := &Limits{Tick: 1, Horizon: 7, Hold: 1000, Grace: grace}
				set(lim)
				for k := range facts {
					f := &facts[k]
					for _, away := range exploreAways() {
						if len(away.Holds) > 0 || !slices.Equal(away.Loop, away.Server) {
							continue
						}
						lives++
						p := promised(r, lim, f)
						want := allowed(p, lim, f, &away)
						if p.unread && want != Never {
							want = want.Add(p.length)
						}
						want = max(want, exploreFrom)
						for want != Never && covers(away.Server, want) {
							want++ // the verdict waits for the process
						}
						if got := live(lim, f, away.Server); got != want {
							t.Fatalf("%v: closed at %d, want %d\n%+v\n%+v\n%v", r, got, want, lim, f, away.Server)
						}
					}
				}
			}
		}
	}
	t.Log(lives, "lives")
}

// exploreFrom is the tick at which the server begins to judge: after all known instants of the
// connection.
const exploreFrom mono.Time = 12

// live judges a connection from exploreFrom on, until a judgement acts.
func live(lim *Limits, f *Facts, stops Outages) mono.Time {
	for now := exploreFrom; now < 200; {
		var away Away
		for _, o := range stops {
			if o.From <= now && now < o.To {
				now = o.To // the process stands still
			}
			if o.To <= now {
				away = *paused(away.Server.Add(o, 0))
			}
		}
		v := lim.Judge(f, &away, now)
		if v.Act != Wait {
			return now
		}
		if v.Next <= now {
			panic(fmt.Sprintf("BUG: verdict: judged at %v, next at %v", now, v.Next))
		}
		now = v.Next
	}
	return Never
}
