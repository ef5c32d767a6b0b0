package connstate

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

const tick = 10 * time.Millisecond

// A conn is a State with a clock that the test moves.
type conn struct {
	State
	clock  mono.Clock
	now    mono.Time
	record conntable.Record
	lim    verdict.Limits
}

func newConn(lim verdict.Limits) *conn {
	c := &conn{lim: lim}
	c.lim.Tick = tick
	c.clock.Init(tick, time.Second, func() mono.Time { return c.now })
	c.pass(tick)
	c.Open(&c.clock, lim.Rate, c.now)
	return c
}

func (c *conn) pass(d time.Duration) {
	for end := c.now.Add(d); c.now < end; {
		c.now = c.now.Add(tick)
		c.clock.Move()
	}
}

func (c *conn) facts() verdict.Facts {
	return c.Facts(&c.clock, &c.record, &c.lim, 0, c.now)
}

func (c *conn) learn(ev verdict.Evidence) (heard bool) {
	f := c.facts()
	return c.Learn(&c.clock, &c.record, &c.lim, &f, &ev, c.now)
}

func TestAStateIs64Bytes(t *testing.T) {
	needs.Bits64(t)
	require.EqualValues(t, 64, unsafe.Sizeof(State{}))
}

func TestTheLastReadIsKnownAfterTheClockHasForgottenIt(t *testing.T) {
	c := newConn(verdict.Limits{})
	c.pass(time.Second)
	c.record.Heard = c.clock.Stamp().Short()
	read := c.now
	c.KeepInReach(&c.clock, &c.record, c.now)
	require.Zero(t, c.heard, "the bound is not kept, because it may still grow")
	require.Equal(t, c.now, c.facts().Heard.To, "only now bounds the present stamp")
	for range 10 {
		c.pass(time.Second / 2)
		c.KeepInReach(&c.clock, &c.record, c.now)
	}
	heard := c.facts().Heard
	require.LessOrEqual(t, heard.From, read)
	require.GreaterOrEqual(t, heard.To, read)
	require.Less(t, heard.To, read.Add(3*tick))
}

func TestInstantsStayInReach(t *testing.T) {
	c := newConn(verdict.Limits{})
	for i, p := range c.instants() {
		*p = mono.Packed(i + 1)
	}
	c.now = mono.Time((1<<30 + 100) * tick)
	c.clock.Move()
	c.record.Heard = c.clock.Stamp().Short()
	c.KeepInReach(&c.clock, &c.record, c.now)
	for i, p := range c.instants() {
		if p != &c.heard {
			require.EqualValues(t, 100, *p, "instant %d", i)
		}
	}
	f, now := c.facts(), mono.Time(100*tick)
	require.Equal(t, [...]mono.Time{now, now, now}, f.Noticed)
}

func TestOldStampsDoNotWrapAround(t *testing.T) {
	c := newConn(verdict.Limits{})
	now := c.clock.Stamp()
	c.record.Heard = (now + 100).Short() // nearly 2^32 moves ago
	c.KeepInReach(&c.clock, &c.record, 0)
	require.EqualValues(t, math.MaxInt32, now-c.record.Heard.Unwrap(now))
}

func TestEachInstantIsAFactOfItsOwn(t *testing.T) {
	c := newConn(verdict.Limits{})
	c.pass(2 * time.Second)
	for i, set := range []func(now mono.Time){
		func(now mono.Time) { c.Notice(&c.clock, reap.ReadIdle, now) },
		func(now mono.Time) { c.Notice(&c.clock, reap.WriteIdle, now) },
		func(now mono.Time) { c.Notice(&c.clock, reap.AllIdle, now) },
	} {
		c.pass(tick)
		set(c.now)
		require.Equal(t, c.now, c.facts().Noticed[i])
	}
	c.pass(tick)
	f := c.facts()
	c.Ping(&c.clock, &f, c.now)
	require.Equal(t, 1, c.facts().Missed)
	require.Equal(t, c.now, c.facts().LastPing)
	nth := c.Pings()
	c.pass(tick)
	f.Missed = 1
	c.Ping(&c.clock, &f, c.now) // while the first one waits
	c.pass(tick)
	c.SendPing(&c.clock, nth)
	require.Equal(t, 1, c.facts().Missed)
	require.Equal(t, c.now, c.facts().LastPing)
	c.pass(tick)
	c.Alive(&c.clock)
	alive := c.now
	c.pass(tick)
	c.SendPing(&c.clock, nth) // it has been answered
	require.Zero(t, c.facts().Missed)
	require.Equal(t, alive, c.facts().LastPing)
	c.pass(tick)
	c.Alive(&c.clock)
	require.Zero(t, c.facts().Missed)
	require.Equal(t, c.now, c.facts().LastPing)
	c.pass(tick)
	c.Leave(&c.clock, c.now)
	goodbye := c.now
	c.pass(tick)
	c.Alive(&c.clock)
	require.True(t, c.facts().Leaving)
	require.Equal(t, goodbye, c.facts().LastPing, "a sign of life does not extend the grace")
	c.Touch(&c.clock)
	require.Equal(t, c.now, c.facts().Heard.To)
	require.Equal(t, c.now, c.facts().Wrote.To)
}

// TestATouchIsNoRead looks at a connection between touches and reads.
func TestATouchIsNoRead(t *testing.T) {
	c := newConn(verdict.Limits{})
	read := c.record.Heard
	for range 3 {
		c.pass(time.Second)
		c.Touch(&c.clock)
		at := c.now
		require.Equal(t, read, c.record.Heard)
		for range 10 {
			require.Equal(t, at, c.facts().Heard.To, "of the Touch")
			require.NotZero(t, c.Touched())
			c.pass(time.Second)
			c.KeepInReach(&c.clock, &c.record, c.now)
		}
		c.record.Heard = c.clock.Stamp().Short()
		read = c.record.Heard
		c.pass(tick)
		require.Equal(t, c.now, c.facts().Heard.To, "of the read")
		c.KeepInReach(&c.clock, &c.record, c.now)
		require.Zero(t, c.Touched())
	}
}

func TestHoldsAreCounted(t *testing.T) {
	c := newConn(verdict.Limits{})
	require.False(t, c.Release())
	c.Hold()
	c.Hold()
	require.False(t, c.Release())
	require.True(t, c.facts().Held)
	require.True(t, c.Release())
	require.False(t, c.facts().Held)
}

func TestWhatTheKernelSaysIsKept(t *testing.T) {
	c := newConn(verdict.Limits{
		All: time.Minute, Stall: time.Minute, Output: verdict.Output{Soft: 1, SoftFor: time.Minute},
		Rate: verdict.Rate{BytesPerSecond: 1, Window: time.Second, Grace: tick, Always: true},
	})
	c.record.Set(conntable.Fresh, true)
	c.pass(time.Second)
	heard := c.learn(verdict.Evidence{Dated: true, Received: 7, Silent: 3 * tick, Quiet: 5 * tick, Moved: 1, Queued: 1})
	require.True(t, heard)
	f := c.facts()
	require.False(t, f.Fresh)
	require.InDelta(t, 3*tick, c.now.Sub(f.Heard.To), float64(2*tick))
	require.Equal(t, c.clock.StampAt(c.now.Add(-3*tick)).Short(), c.record.Heard)
	require.InDelta(t, 5*tick, c.now.Sub(f.Wrote.To), float64(2*tick))
	require.Equal(t, c.now, f.StalledSince)
	require.True(t, f.Counting, "a window has begun")
	require.True(t, c.Polled())
	require.False(t, f.Blind)
	require.False(t, c.learn(verdict.Evidence{Queued: 1}))
	require.True(t, c.facts().Blind)
}

func TestTheEndOfAPeerIsKept(t *testing.T) {
	c := newConn(verdict.Limits{HalfClosed: time.Minute})
	c.pass(time.Second)
	require.False(t, c.learn(verdict.Evidence{HalfEnded: true}))
	ended := c.now
	for range 2 {
		require.Equal(t, ended, c.facts().EndedSince)
		c.pass(time.Second)
		c.learn(verdict.Evidence{HalfEnded: true})
	}
}

func TestAdaptForgetsTheStateOfLimitsThatAreOff(t *testing.T) {
	rate := verdict.Rate{BytesPerSecond: 1, Window: time.Second, Always: true}
	beat := verdict.Heartbeat{Interval: time.Minute}
	on := &verdict.Limits{Stall: time.Hour, Output: verdict.Output{Soft: 1, SoftFor: time.Hour}, Heartbeat: beat, Rate: rate}
	c := newConn(*on)
	c.pass(time.Second)
	c.stalled, c.over, c.rated, c.received, c.missed = 7, 7, 7, 7, 1
	before := c.State
	c.Adapt(&c.clock, on, on)
	require.Equal(t, before, c.State, "all limits are on")
	soft := *on
	soft.Output.Soft = 0
	c.Adapt(&c.clock, on, &soft)
	require.Zero(t, c.over)
	require.EqualValues(t, 7, c.stalled)
	c.Adapt(&c.clock, &soft, &verdict.Limits{})
	require.Zero(t, c.stalled)
	require.Zero(t, c.rated)
	require.Zero(t, c.received)
	require.Zero(t, c.missed)
	c.Adapt(&c.clock, &verdict.Limits{}, on)
	require.NotZero(t, c.rated, "a message is always open")
}

func TestOldConnectionsAreNotPingedAtOnce(t *testing.T) {
	any := &verdict.Limits{Heartbeat: verdict.Heartbeat{Interval: time.Second}, Age: time.Hour}
	pongs := *any
	pongs.Heartbeat.PongsOnly = true
	c := newConn(*any)
	c.pass(time.Minute)
	c.Adapt(&c.clock, any, &pongs)
	require.Equal(t, c.now, c.facts().LastPing, "only pongs count from now on")
	c.missed = 1
	c.Adapt(&c.clock, &pongs, any)
	require.Zero(t, c.missed, "a byte after that ping counts as well from now on")
	for age, leaves := range map[time.Duration]bool{0: false, 2 * time.Hour: false, 2 * time.Minute: true} {
		c.Leave(&c.clock, c.now)
		c.missed = 1
		c.pass(time.Minute)
		c.Adapt(&c.clock, &pongs, &verdict.Limits{Heartbeat: pongs.Heartbeat, Age: age})
		require.Equal(t, leaves, c.Is(Leaving), "the maximum age is %v now", age)
		require.Equal(t, leaves, c.missed == 1)
		require.Equal(t, !leaves, c.facts().LastPing == c.now)
	}
}

func TestExemptConnectionsAreNotJudged(t *testing.T) {
	var s State
	require.True(t, s.Judged())
	s.stalled, s.over = 1, 1
	s.Spare(Exempt, true)
	require.False(t, s.Judged())
	require.False(t, s.Polled())
	s.Spare(Exempt, false)
	s.stalled, s.over = 1, 1
	s.Spare(Observed, true)
	require.False(t, s.Judged())
	require.False(t, s.Polled())
}
