package watch

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/connstate"
	"github.com/idlewheel/idlewheel/reap"
)

// TestAClosedConnectionLeavesNothing closes a connection with all that a Shard keeps of it. The
// next connection has its number.
func TestAClosedConnectionLeavesNothing(t *testing.T) {
	for _, how := range []string{"open", "observed", "ended", "observed and ended"} {
		p := newTestPort(t, testConfig{ReadTimeout: time.Hour, ObserveOnly: true})
		p.pass(p.Clock.Tick())
		id, c := p.open()
		require.NoError(t, p.SetLimits(id, c, reap.ConnLimits{ReadTimeout: time.Minute}))
		c.Hold()
		if strings.Contains(how, "observed") {
			p.Observe(c, &reap.Error{Reason: reap.ReadIdle})
		}
		if strings.Contains(how, "ended") {
			p.Ends.Add(id, c.Is(connstate.Observed), &reap.Error{})
			p.follow(1, func(cfg *Config) { cfg.ObserveOnly = false })
		}
		p.Drop(id, c)
		require.Zero(t, p.Decided.Load(), how)
		require.Zero(t, p.Watcher.Open.Load(), how)
		require.EqualValues(t, 1, p.Counters.Closed)
		require.Zero(t, p.Schedule.Len()+p.Ends.Len())
		p.pass(p.Clock.Tick())
		next, c := p.open()
		require.Equal(t, id, next)
		require.NoError(t, p.SetLimits(id, c, reap.ConnLimits{ReadTimeout: time.Second}))
		require.EqualValues(t, 1, c.LimitsID, "the number of the limits is used again")
		require.True(t, p.IsJudged(id, c))
		require.False(t, c.Held())
	}
}

// TestAnIDIsOfOneReaper: it may come from a page that shows the process before a restart.
func TestAnIDIsOfOneReaper(t *testing.T) {
	var ids []reap.ConnID
	for range 2 {
		p := newTestPort(t, testConfig{ReadTimeout: time.Hour})
		id, c := p.open()
		ids = append(ids, p.ID(id, c))
	}
	require.NotEqual(t, ids[0], ids[1])
}

func TestAKickHitsNoOtherConnection(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour})
	require.False(t, p.Shard.Kick(0, 0), "there was no connection yet")
	p.pass(p.Clock.Tick())
	id, c := p.open()
	tag := p.tag(c)
	p.Drop(id, c)
	require.False(t, p.Shard.Kick(id, tag))
	require.False(t, p.Shard.Kick(id, p.tag(c)), "the number is free")
	p.pass(p.Clock.Tick())
	next, c := p.open()
	require.Equal(t, id, next)
	require.False(t, p.Shard.Kick(id, tag), "the number is that of the next connection")
	p.Ends.Add(id, false, &reap.Error{})
	require.False(t, p.Shard.Kick(id, p.tag(c)), "it has ended")
	p.End(id, c, &reap.Error{})
	require.Empty(t, p.closed)
}

// TestASecondCallChangesNothing saves a pass over all connections.
func TestASecondCallChangesNothing(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour})
	for _, call := range []func() error{
		func() error { return p.ScaleTimeouts(0.5, time.Minute) },
		func() error { return p.Drain(0, time.Hour) },
	} {
		require.NoError(t, call())
		set := p.Settings()
		require.True(t, p.Follow(set))
		p.now = p.now.Add(time.Minute)
		require.NoError(t, call())
		require.Same(t, set, p.Settings())
		require.False(t, p.Follow(set))
	}
	require.Nil(t, p.Settings().previous.previous, "older settings take no memory")
}

// TestAnUpdateOfOtherLimitsLeavesAMessageOpen has a connection with a rate, and two without.
func TestAnUpdateOfOtherLimitsLeavesAMessageOpen(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour})
	rate := reap.MinRate{BytesPerSecond: 1, Window: time.Hour, Always: true}
	p.follow(0, func(cfg *Config) { cfg.Limits.Rate = rate })
	id, c := p.open()
	rate.Always = false
	require.NoError(t, p.SetLimits(id, c, reap.ConnLimits{MinRate: rate}))
	require.True(t, c.BeginMessage(&p.Clock, p.LimitsOf(c).Rate))
	silent, other := p.open()
	looked, third := p.open()
	p.follow(0, func(cfg *Config) { cfg.Limits.Rate = rate })
	require.NoError(t, p.SetLimits(silent, other, reap.ConnLimits{MinRate: rate}))
	p.Look(third.timer, looked)
	require.Zero(t, p.Facts(looked, third, p.now).RatedSince)
	p.AdaptSome(2)
	require.NotZero(t, p.Facts(id, c, p.now).RatedSince)
	require.Zero(t, p.Facts(silent, other, p.now).RatedSince, "no message of it is open any more")
}

// TestShardsHaveOtherRandomNumbers has connections with the same number, opened in the same tick. A
// drain closes them at different instants.
func TestShardsHaveOtherRandomNumbers(t *testing.T) {
	of := map[float64]bool{}
	for number := range uint32(4) {
		p := newTestPort(t, testConfig{ReadTimeout: time.Hour})
		p.Number = number
		for range 4 {
			id, c := p.open()
			of[p.Random(id, c)] = true
			require.True(t, of[p.Facts(id, c, p.now).Random])
		}
	}
	require.Len(t, of, 16)
}
