package watch

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// TestASampleIsOfAllConnections has connections that send in the order of opening.
func TestASampleIsOfAllConnections(t *testing.T) {
	w := newTown(t, 1200)
	w.inRow = true
	w.live(90*time.Second, true)
	require.Zero(t, w.Stats(&Counters{}, true).GroupSuspensions)
	members := w.sample(network0).members
	require.Len(t, members, sampleSeen)
	require.True(t, slices.ContainsFunc(members, func(m member) bool { return m.id >= 1000 }))
	below := 0
	for id := range uint32(1200) {
		if w.Random(id, w.At(id)) < w.sample(network0).highest {
			below++
		}
	}
	require.Equal(t, sampleSeen-1, below, "the members have the lowest ranks")
	w.live(10*time.Second, false)
	require.Contains(t, w.held(), network0)
}

// TestASilentConnectionLeavesItsSample has connections with requests longer than a timeout.
func TestASilentConnectionLeavesItsSample(t *testing.T) {
	w := newTown(t, 96)
	for _, c := range w.conns[:48] {
		c.Hold()
	}
	w.live(20*time.Second, true)
	require.Len(t, w.sample(network0).members, 96)
	w.group = append(make([]int, 48), slices.Repeat([]int{1}, 48)...)
	w.live(40*time.Second, false, true)
	require.Len(t, w.sample(network0).members, 48)
}

// TestTheNextConnectionIsInNoSample opens connections of one network in the places of another's.
func TestTheNextConnectionIsInNoSample(t *testing.T) {
	w := newTown(t, 48, 48)
	w.live(10*time.Second, true, true)
	for id := range 24 {
		w.Drop(uint32(id), w.conns[id])
	}
	for range 24 {
		id, c := w.open()
		w.conns[id], w.group[id], w.ids[c] = c, 1, int(id)
	}
	w.live(10*time.Second, true, true)
	require.Len(t, w.sample(network0).members, 24)
}

// TestSamplesAreGivenBack closes all connections.
func TestSamplesAreGivenBack(t *testing.T) {
	w := newTown(t, 48)
	w.live(5*time.Second, true)
	require.EqualValues(t, 48, w.watched()[network0].size.Load())
	for id, c := range w.conns {
		w.Drop(uint32(id), c)
	}
	require.Zero(t, w.watched()[network0].size.Load())
	require.Empty(t, w.Groups.list)
	require.Empty(t, w.groups.offers)
}

// TestConnectionsWithoutATimeoutTakeNoPlaceInASample has many subscribers in the network of a few
// clients, and one client that has asked for a timeout of a day. One front end knows when each was
// heard, and one asks.
func TestConnectionsWithoutATimeoutTakeNoPlaceInASample(t *testing.T) {
	cfg := testConfig{ReadTimeout: 32 * time.Second, Tick: 100 * time.Millisecond}
	for _, p := range []*testPort{newTestPort(t, cfg), newAskingPort(t, cfg)} {
		w := newTownOf(p, 100, 4000)
		for id := range w.group {
			w.group[id] = 0
			if id >= 100 {
				require.NoError(t, w.SetLimits(uint32(id), w.conns[id], reap.ConnLimits{ReadTimeout: -1}))
			}
		}
		long, c := w.open()
		require.NoError(t, w.SetLimits(long, c, reap.ConnLimits{ReadTimeout: 24 * time.Hour}))
		w.ids[c] = len(w.conns)
		w.conns, w.group = append(w.conns, c), append(w.group, 1)
		all := w.conns
		speak := func(d time.Duration, n int) {
			w.conns = all[:n]
			w.live(d, true, true)
		}
		speak(100*time.Second, 100)
		speak(37*time.Second, 0)
		require.Empty(t, w.closed)
	}
}

// TestAGroupWithHeartbeatsIsHeld has peers that send together every 15 s, and are pinged before
// their silence is noticed.
func TestAGroupWithHeartbeatsIsHeld(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 32 * time.Second, Tick: 100 * time.Millisecond})
	cfg := p.Settings().Config
	cfg.Limits.Read, cfg.Limits.Heartbeat = 0, verdict.Heartbeat{Interval: 20 * time.Second, Retry: 20 * time.Second, MaxMissed: 3}
	p.put(newSettings(p.form, cfg, 2, overlay{}, nil, 0))
	w := newTownOf(p, 48, 48)
	together := func(d time.Duration, speak bool) {
		for end := w.now.Add(d); w.now < end; {
			w.live(w.Clock.Tick(), false, true)
			for _, c := range w.conns[:48] {
				if speak && int(w.now/mono.Time(w.Clock.Tick()))%150 == 0 {
					c.Front.Heard = w.Clock.Stamp().Short()
				}
			}
		}
	}
	together(3*time.Minute, true)
	together(90*time.Second, false)
	require.Empty(t, w.closed)
}

// TestAStrideLeadsThroughAllPlaces asks as many connections as a count does. No part of all is left
// out, and none is asked twice.
func TestAStrideLeadsThroughAllPlaces(t *testing.T) {
	for _, n := range []uint32{2052, 4104, 4105, 1e5, 1 << 20, 1<<20 + 3} {
		at, seen := uint32(0), []uint32{n}
		for range verifyAsked {
			at = (at + strideOf(n)) % n
			seen = append(seen, at)
		}
		slices.Sort(seen)
		for i, place := range seen[1:] {
			require.Greater(t, place, seen[i], "of %d", n)
			require.LessOrEqual(t, place-seen[i], n/64, "of %d", n)
		}
	}
}

// TestAGroupIsVerifiedByItself silences a second group while the rest of a first one is asked,
// except for connections that are in no sample.
func TestAGroupIsVerifiedByItself(t *testing.T) {
	const first = 2000
	w := newTown(t, 8000)
	w.path = nil
	second := reap.Group{Name: "second"}
	for id := range uint32(8000) {
		w.Groups.SetName(id, second.Name)
		if id < first {
			w.Groups.SetName(id, "first")
		}
	}
	w.live(60*time.Second, true)
	members := w.sample(second).members
	living := slices.DeleteFunc(slices.Clone(w.conns[first:]), func(c *testConn) bool {
		return slices.ContainsFunc(members, func(m member) bool { return w.At(m.id) == c })
	})
	for n := range 455 {
		w.pass(w.Clock.Tick())
		for part := 1; w.Groups.Step() && part < 20; part++ {
		}
		for id, c := range w.conns {
			if speaks := n < 300 || n < 305 && id >= first; speaks && (n+53*id)%80 == 0 {
				c.Front.Heard = w.Clock.Stamp().Short()
			}
		}
		for _, c := range living[n%20*7:][:14] {
			c.Front.Heard = w.Clock.Stamp().Short()
		}
		require.NotContains(t, w.held(), second)
	}
}

// TestTimeoutsOfConnectionsReachGroups gives connections timeouts of their own after the first step
// of their Shard, when the next one is due in a long time. A network fails.
func TestTimeoutsOfConnectionsReachGroups(t *testing.T) {
	for _, tc := range []struct{ cfg, own, scaled time.Duration }{
		{24 * time.Hour, 32 * time.Second, 0},
		{0, 32 * time.Second, 0},
		{0, time.Hour, 32 * time.Second},
	} {
		p := newTestPort(t, testConfig{ReadTimeout: 1000 * time.Hour, Tick: 100 * time.Millisecond})
		cfg := p.Settings().Config
		cfg.Limits.Read = tc.cfg
		p.put(newSettings(p.form, cfg, 2, overlay{}, nil, 0))
		w := newTownOf(p, 48, 48)
		var other Shard[conntable.Record]
		other.Init(&p.Watcher, 2, p)
		w.live(time.Second, true, true)
		for other.Groups.Step() {
		}
		for id, c := range w.conns {
			require.NoError(t, w.SetLimits(uint32(id), c, reap.ConnLimits{ReadTimeout: tc.own}))
		}
		require.Zero(t, other.Groups.Due(), "%v", tc)
		if tc.scaled > 0 {
			require.NoError(t, w.ScaleTimeouts(1, tc.scaled))
		}
		w.live(3*time.Minute, true, true)
		w.live(48*time.Second, false, true)
		require.Empty(t, w.closed, "%v", tc)
	}
}
