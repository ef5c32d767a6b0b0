package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/reap"
)

// TestLimitsOfAClosedConnectionAreGivenBack checks the number of users of shared limits.
func TestLimitsOfAClosedConnectionAreGivenBack(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 5 * time.Second})
	var number uint16
	for want := range uint32(2) {
		id, c := p.open()
		for range 3 {
			require.NoError(t, p.SetLimits(id, c, reap.ConnLimits{ReadTimeout: time.Hour}))
			require.NoError(t, p.SetLimits(id, c, reap.ConnLimits{ReadTimeout: time.Minute}))
		}
		number = c.LimitsID
		require.Equal(t, want+1, p.limits.uses[number])
		require.Len(t, p.limits.index, 1)
	}
	p.pass(2 * time.Minute)
	require.Len(t, p.closed, 2)
	require.Zero(t, p.limits.uses[number])
	require.Empty(t, p.limits.index)
	for n := range time.Duration(3) {
		id, c := p.open()
		require.NoError(t, p.SetLimits(id, c, reap.ConnLimits{MaxAge: (n + 1) * time.Hour}))
		require.EqualValues(t, 1, p.limits.uses[c.LimitsID], "no other limits have its number")
	}
}

// TestLimitsOfAConnectionApplyAtOnce gives limits to a connection with its next look in an hour.
func TestLimitsOfAConnectionApplyAtOnce(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour})
	id, c := p.open()
	require.NoError(t, p.SetLimits(id, c, reap.ConnLimits{ReadTimeout: 10 * time.Second}))
	p.pass(10*time.Second + 2*p.Clock.Tick())
	require.Len(t, p.closed, 1)
	require.Zero(t, p.Counters.SparedUnread)
}

// TestLimitsOfAConnectionAdaptItsState begins and ends the windows of a minimum rate.
func TestLimitsOfAConnectionAdaptItsState(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour})
	id, c := p.open()
	p.pass(time.Second)
	always := reap.MinRate{BytesPerSecond: 1, Always: true}
	require.NoError(t, p.SetLimits(id, c, reap.ConnLimits{MinRate: always}))
	require.NotZero(t, p.Facts(id, c, p.now).RatedSince)
	require.Equal(t, configtable.DefaultWindow, p.LimitsOf(c).Rate.Window)
	require.NoError(t, p.SetLimits(id, c, reap.ConnLimits{MinRate: reap.MinRate{BytesPerSecond: -1}}))
	require.Zero(t, p.Facts(id, c, p.now).RatedSince)
	require.NoError(t, p.SetLimits(id, c, reap.ConnLimits{}))
	require.Zero(t, c.LimitsID, "it has the limits of the others")
	p.limits.all, p.limits.unused = make([]*Limits, maxLimits+1), nil
	require.ErrorContains(t, p.SetLimits(id, c, reap.ConnLimits{MaxAge: time.Hour}), "round them")
}

// TestTheMonitorKnowsTheTimeoutsOfConnections has a silence that is long for one connection only.
func TestTheMonitorKnowsTheTimeoutsOfConnections(t *testing.T) {
	for _, own := range []time.Duration{0, 10 * time.Second} {
		p := newTestPort(t, testConfig{ReadTimeout: time.Hour})
		id, c := p.open()
		require.NoError(t, p.SetLimits(id, c, reap.ConnLimits{ReadTimeout: own}))
		for p.now < mono.Time(5*time.Second) {
			p.now = p.now.Add(p.Clock.Tick())
			p.Move(func(mono.Time) mono.Time { return 0 })
		}
		require.Equal(t, own > 0, p.Monitor.State().Count != nil, "%v", own)
		p.Resume() // after a time without connections
		require.Nil(t, p.Monitor.State().Count)
	}
}

// TestLimitsAreRebuiltWhenTheyAreUsed changes the settings, which would otherwise rebuild the
// limits of thousands of connections at once.
func TestLimitsAreRebuiltWhenTheyAreUsed(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour})
	id, c := p.open()
	require.NoError(t, p.SetLimits(id, c, reap.ConnLimits{AllTimeout: 2 * time.Hour}))
	old := p.limits.all[c.LimitsID]
	require.Error(t, p.ScaleTimeouts(1, -1))
	require.NoError(t, p.ScaleTimeouts(1, time.Minute))
	p.Follow(p.Settings())
	require.Same(t, old, p.limits.all[c.LimitsID])
	require.Equal(t, time.Minute, p.LimitsOf(c).Read)
	require.Equal(t, time.Minute, p.LimitsOf(c).All)
}

func TestOutagesAreRememberedForOwnLimits(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 10 * time.Second})
	id, c := p.open()
	require.NoError(t, p.Shard.SetLimits(id, c, reap.ConnLimits{HandshakeTimeout: time.Hour, AllTimeout: time.Second}))
	rule := p.Watcher.Rule()
	require.Equal(t, [3]time.Duration{time.Hour, time.Hour, time.Second}, [3]time.Duration{rule.Memory, rule.Longest, rule.Shortest})
	p.Drop(id, c)
	p.Resume()
	require.Equal(t, 10*time.Second, p.Watcher.Rule().Longest, "no connection is open")
	require.Equal(t, 10*time.Second, p.Watcher.Rule().Shortest)
}

// TestTheRuleForgetsTimeoutsOfTheConfig gives a connection a maximum age only.
func TestTheRuleForgetsTimeoutsOfTheConfig(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Second})
	id, c := p.open()
	require.NoError(t, p.ScaleTimeouts(1, 500*time.Millisecond))
	require.NoError(t, p.Shard.SetLimits(id, c, reap.ConnLimits{MaxAge: time.Hour}))
	require.Equal(t, 500*time.Millisecond, p.Watcher.Rule().Shortest)
	require.NoError(t, p.ScaleTimeouts(0, 0))
	require.NoError(t, p.update(func(cfg *testConfig) { cfg.ReadTimeout = 10 * time.Minute }))
	require.Equal(t, 10*time.Minute, p.Watcher.Rule().Shortest)
}

// TestAStopIsAsLongForLimitsOfAConnection stops the process for more than a tenth of a timeout,
// also of one that ScaleTimeouts sets.
func TestAStopIsAsLongForLimitsOfAConnection(t *testing.T) {
	const timeout = 300 * time.Millisecond
	closed := func(cfg, own, scaled time.Duration) mono.Time {
		p := newTestPort(t, testConfig{ReadTimeout: cfg, Tick: 10 * time.Millisecond})
		require.NoError(t, p.ScaleTimeouts(1, scaled))
		id, c := p.open()
		require.NoError(t, p.Shard.SetLimits(id, c, reap.ConnLimits{ReadTimeout: own}))
		p.pass(150 * time.Millisecond)
		p.now = p.now.Add(170 * time.Millisecond)
		for len(p.closed) == 0 && p.now < mono.Time(time.Second) {
			p.pass(10 * time.Millisecond)
		}
		return p.now
	}
	want := closed(timeout, 0, time.Minute)
	require.Equal(t, want, closed(time.Minute, timeout, time.Minute))
	require.Equal(t, want, closed(time.Minute, 0, timeout))
}

// TestHalfOfTheConnectionsSayWhatIsUsual has clients with a timeout of their own below that of the
// Config, and one with a very short one.
func TestHalfOfTheConnectionsSayWhatIsUsual(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour, Tick: 100 * time.Millisecond})
	all := map[uint32]*testConn{}
	usual := func() time.Duration {
		for range 2000 {
			p.pass(500 * time.Millisecond)
			for _, c := range all {
				c.Front.Heard = p.Clock.Stamp().Short()
			}
			for p.Groups.Step() {
			}
		}
		return p.Rule().Usual
	}
	require.Equal(t, time.Hour, p.Rule().Usual)
	for n := range 12 {
		id, c := p.open()
		own := reap.ConnLimits{ReadTimeout: 90 * time.Second}
		if n == 0 {
			own.ReadTimeout = time.Second
		}
		require.NoError(t, p.SetLimits(id, c, own))
		all[id] = c
	}
	require.Equal(t, 90*time.Second, usual())
	for id, c := range all {
		if id < 6 {
			p.Drop(id, c)
			delete(all, id)
		}
	}
	for range 8 {
		id, c := p.open()
		all[id] = c
	}
	require.Equal(t, time.Hour, usual())
	require.Empty(t, p.closed)
}

// TestTheShortestTimeoutIsUsual has a long one beside it. The shard with most connections says what
// is usual, unless it has lost them.
func TestTheShortestTimeoutIsUsual(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 10 * time.Minute, AllTimeout: 30 * time.Second})
	require.Equal(t, 30*time.Second, p.Rule().Usual)
	p.open()
	for p.now < mono.Time(20*time.Second) {
		p.pass(p.Clock.Tick())
		for p.Groups.Step() {
		}
	}
	require.Equal(t, 30*time.Second, p.usual.timeout)

	var large, small idleCount
	for range 9 {
		large.add(time.Minute)
	}
	small.add(24 * time.Hour)
	var u usual
	require.True(t, u.note(1, &large))
	require.False(t, u.note(2, &small))
	require.Equal(t, time.Minute, u.timeout)
	require.False(t, u.note(1, &large), "it is the same")
	for range 9 {
		u.note(2, &small)
	}
	require.Equal(t, 24*time.Hour, u.timeout)
}
