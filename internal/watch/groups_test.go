package watch

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// A town is a testPort with connections from several networks.
type town struct {
	*testPort
	conns []*testConn
	ids   map[*testConn]int
	group []int // of each connection
	inRow bool  // connections send in the order of opening
	steps int   // parts of a step of groups in a tick, 0 for all
}

// newTown opens connections in groups of the given sizes. Group n comes from 10.n.0.0/16.
func newTown(t *testing.T, sizes ...int) *town {
	return newTownOf(newTestPort(t, testConfig{ReadTimeout: 32 * time.Second, Tick: 100 * time.Millisecond}), sizes...)
}

func newTownOf(p *testPort, sizes ...int) *town {
	w := &town{testPort: p}
	w.ids = make(map[*testConn]int)
	w.path = func(c *testConn) (local, remote netip.Addr) {
		id := w.ids[c]
		return local, netip.AddrFrom4([4]byte{10, byte(w.group[id]), byte(id % 16), byte(id / 16)})
	}
	for n, size := range sizes {
		for range size {
			_, c := w.open()
			w.ids[c] = len(w.conns)
			w.conns, w.group = append(w.conns, c), append(w.group, n)
		}
	}
	return w
}

// live passes time in which all connections of some groups send a byte each eight seconds.
func (w *town) live(d time.Duration, lives ...bool) {
	for end := w.now.Add(d); w.now < end; {
		w.pass(w.Clock.Tick())
		for n := 1; w.Groups.Step() && n != w.steps; n++ {
		}
		for id, c := range w.conns {
			phase := 53 * id
			if w.inRow {
				phase = id * 80 / len(w.conns)
			}
			if lives[w.group[id]] && (int(w.now/mono.Time(w.Clock.Tick()))+phase)%80 == 0 {
				c.Front.Heard = w.Clock.Stamp().Short()
			}
		}
	}
}

// setName gives the connections of group 0 a name instead of an address.
func (w *town) setName(name string) {
	w.path = nil
	for id, group := range w.group {
		if group == 0 {
			w.Groups.SetName(uint32(id), name)
		}
	}
}

func (w *town) sample(name reap.Group) *sample {
	i := slices.IndexFunc(w.Groups.list, func(one *sample) bool { return one.name == name })
	return w.Groups.list[i]
}

var network0 = reap.Group{Remote: netip.MustParsePrefix("10.0.0.0/16")}

func (w *town) held() (names []reap.Group) {
	for _, h := range w.Stats(&Counters{}, true).SuspendedFor {
		names = append(names, h.Group)
	}
	return names
}

// TestAGroupThatFallsSilentIsHeld silences one network of two. Its connections are closed within
// two timeouts of their last byte, those of the other network live.
func TestAGroupThatFallsSilentIsHeld(t *testing.T) {
	w := newTown(t, 48, 48)
	var log strings.Builder
	w.Settings().Logger = slog.New(slog.NewTextHandler(&log, nil))
	w.live(40*time.Second, true, true)
	require.Empty(t, w.held())
	w.live(31*time.Second, false, true)
	require.Contains(t, w.held(), network0)
	require.NotContains(t, w.held(), reap.Group{Remote: netip.MustParsePrefix("10.1.0.0/16")})
	require.NotContains(t, w.held(), reap.Group{}, "others are heard")
	w.reportGroups()
	w.live(30*time.Second, false, true)
	require.Empty(t, w.closed, "they may be heard again")
	w.live(5*time.Second, false, true)
	require.Len(t, w.closed, 48)
	w.reportGroups()
	require.Contains(t, log.String(), "verdicts about their peers go on")
	require.Positive(t, w.Stats(&Counters{}, true).GroupSuspensions)
}

// TestConnectionsReapedInASilenceCount silences a network. Two thirds of it are reaped before its
// silence is as long as the time in which enough of it were busy.
func TestConnectionsReapedInASilenceCount(t *testing.T) {
	w := newTownOf(newTestPort(t, testConfig{ReadTimeout: 10 * time.Second, Tick: 100 * time.Millisecond}), 30, 30)
	w.live(40*time.Second, true, true)
	w.live(4*time.Second, false, true)
	for id := range uint32(3 * silentAtOnce / 2) { // of another shard
		w.silent.note(reapedConn{2, id, 1}, silentReap{})
	}
	w.live(4*time.Second, false, true)
	require.Contains(t, w.held(), network0)
	w.live(8*time.Second, false, true)
	require.Less(t, len(w.closed), groupBusy)
	w.live(12*time.Second, false, true)
	require.Len(t, w.closed, 30)
	require.Empty(t, w.held())
	w.live(40*time.Second, false, true)
	require.NotContains(t, w.watched(), network0)
}

// TestAGroupThatIsHeardForgetsItsPast closes most of a group. Another one is observed with a
// timeout that is too short, and lives.
func TestAGroupThatIsHeardForgetsItsPast(t *testing.T) {
	w := newTown(t, 100, 48)
	w.live(60*time.Second, true, true)
	for id := range uint32(95) {
		w.Remove(id, w.conns[id])
		w.conns[id] = new(testConn)
	}
	w.live(5*time.Minute, true, true)
	require.NotContains(t, w.watched(), network0)

	w = newTownOf(newTestPort(t, testConfig{ReadTimeout: 5 * time.Second, ObserveOnly: true, Tick: 100 * time.Millisecond}), 48, 48)
	w.live(time.Minute, true, true)
	require.Zero(t, w.Stats(&Counters{}, true).GroupSuspensions)
}

// TestAGroupIsWatchedAfterALongOutage ends the silence of a network after a timeout. Another one
// begins soon.
func TestAGroupIsWatchedAfterALongOutage(t *testing.T) {
	w := newTown(t, 48, 48)
	w.live(60*time.Second, true, true)
	w.live(34*time.Second, false, true)
	w.live(8*time.Second, true, true)
	w.live(40*time.Second, false, true)
	require.Contains(t, w.held(), network0)
	require.Empty(t, w.closed)
}

// TestAProbeFromInsideHidesNoOutageOfTheInternet silences peers that have nothing in common but a
// public address, while a probe of the same network as the server is heard.
func TestAProbeFromInsideHidesNoOutageOfTheInternet(t *testing.T) {
	w := newTown(t, 48, 1)
	w.path = func(c *testConn) (local, remote netip.Addr) {
		if id := w.ids[c]; w.group[id] == 0 {
			return netip.MustParseAddr("10.0.0.1"), netip.AddrFrom4([4]byte{byte(20 + id), 1, 1, 1})
		}
		return netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	}
	w.live(40*time.Second, true, true)
	w.live(61*time.Second, false, true)
	require.Equal(t, []reap.Group{{Remote: netip.MustParsePrefix("0.0.0.0/0")}}, w.held())
	require.Empty(t, w.closed)
	w.live(5*time.Second, false, true)
	require.Len(t, w.closed, 48)
}

// TestAGroupThatIsHeardAgainGetsAChance ends the silence of a network after a timeout and a half.
func TestAGroupThatIsHeardAgainGetsAChance(t *testing.T) {
	w := newTown(t, 48, 48)
	var log strings.Builder
	w.Settings().Logger = slog.New(slog.NewTextHandler(&log, nil))
	w.live(40*time.Second, true, true)
	w.live(48*time.Second, false, true)
	w.reportGroups()
	require.Contains(t, log.String(), "nothing is heard from a group of connections")
	w.conns[0].Front.Heard = w.Clock.Stamp().Short()
	w.live(40*time.Second, false, true)
	w.reportGroups()
	require.Contains(t, log.String(), "the silence of a group of connections is over")
	require.Empty(t, w.held())
	require.Empty(t, w.closed, "TCP may need as long as the outage took")
	w.live(20*time.Second, false, true)
	require.Len(t, w.closed, 48)
	silences := w.inspectSilences(t)
	require.Less(t, silences.DeadFor/float64(silences.Dead), 64.0, "the outage is no silence")
}

// TestRequestsThatEndDoNotEndTheSilenceOfAGroup ends the work on some requests while their network
// is down.
func TestRequestsThatEndDoNotEndTheSilenceOfAGroup(t *testing.T) {
	w := newTown(t, 64, 48)
	w.live(60*time.Second, true, true)
	for _, c := range w.conns[:16] {
		c.Hold()
	}
	w.live(10*time.Second, true, true)
	for id, c := range w.conns[:20] {
		w.live(2*time.Second, false, true)
		w.Shard.Release(uint32(id), c) // the last four are not held
	}
	require.EqualValues(t, 1, w.Stats(&Counters{}, true).GroupSuspensions)
	require.Empty(t, w.closed)
}

// TestAnOutageOfAllIsNoSilenceOfAGroup has an outage of all connections that is too short to be
// noticed in one network. It must not delay the hold when this network fails alone.
func TestAnOutageOfAllIsNoSilenceOfAGroup(t *testing.T) {
	w := newTown(t, 48, 48)
	w.live(60*time.Second, true, true)
	w.last = w.now
	for range 25 {
		w.live(100*time.Millisecond, false, false)
		if count := w.Monitor.State().Count; count != nil {
			count.Add(count.Enough())
		}
	}
	w.last = 0
	w.live(20*time.Second, true, true)
	stats := w.Stats(&Counters{}, true)
	require.EqualValues(t, 1, stats.Suspensions)
	require.Zero(t, stats.GroupSuspensions)
	w.live(3*time.Second, false, true)
	require.Contains(t, w.held(), network0, "a silence of 2.5 s is enough")
}

// TestALoopOffersTheLargestNetworksAndAllNames has 150 networks with two connections each, and
// parts of them with one.
func TestALoopOffersTheLargestNetworksAndAllNames(t *testing.T) {
	w := newTown(t, slices.Repeat([]int{2}, 150)...)
	w.Groups.SetName(0, "zone")
	w.live(40*time.Second, slices.Repeat([]bool{true}, 150)...)
	offers := w.Watcher.groups.offers[1]
	require.Len(t, offers, 150+1)
	require.Equal(t, 1, offers[reap.Group{Name: "zone"}])
}

func TestASmallGroupIsNotHeld(t *testing.T) {
	w := newTown(t, groupBusy-1, 48)
	w.live(40*time.Second, true, true)
	w.live(33*time.Second, false, true)
	require.Len(t, w.closed, groupBusy-1)
	require.Zero(t, w.Stats(&Counters{}, true).GroupSuspensions)
}

// TestALargeGroupIsFoundAmongThousands has more groups than are counted: each connection is from a
// network of its own, and every fourth has the name of the large group.
func TestALargeGroupIsFoundAmongThousands(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 32 * time.Second})
	nets := map[*testConn]int{}
	p.path = func(c *testConn) (local, remote netip.Addr) {
		return local, netip.AddrFrom16([16]byte{0x20, byte(nets[c] >> 8), byte(nets[c])})
	}
	for n := range 2500 { // three networks each
		id, c := p.open()
		nets[c] = n
		if n%4 == 0 {
			p.Groups.SetName(id, "large")
		}
	}
	for range 100 {
		p.pass(p.Clock.Tick())
		for p.Groups.Step() {
			require.LessOrEqual(t, len(p.Groups.counts), maxCounts)
		}
	}
	require.Contains(t, slices.Collect(maps.Keys(p.watched())), reap.Group{Name: "large"})
}

// TestOneOfAGroupIsHeard silences all connections of a group but one, which is in no sample.
func TestOneOfAGroupIsHeard(t *testing.T) {
	w := newTown(t, 3000)
	name := reap.Group{Name: "proxy"}
	w.setName(name.Name)
	w.live(40*time.Second, true)
	members := w.sample(name).members
	spared := uint32(0)
	for slices.ContainsFunc(members, func(m member) bool { return m.id == spared }) {
		spared++
	}
	for range 31 {
		w.conns[spared].Front.Heard = w.Clock.Stamp().Short()
		w.live(time.Second, false)
	}
	require.Zero(t, w.Stats(&Counters{}, true).GroupSuspensions)
	require.Empty(t, w.watched()[name].monitor.State().Silent)
	w.live(9*time.Second, false)
	require.Len(t, w.closed, 2999, "in time")
}

// TestClosedConnectionsMakeRoomInASample closes most connections of a network. The others send in
// each tick, until it fails.
func TestClosedConnectionsMakeRoomInASample(t *testing.T) {
	w := newTown(t, 3000, 48)
	w.live(40*time.Second, true, true)
	for n := range 450 {
		for id, c := range w.conns[:3000] {
			if id < 48 {
				c.Front.Heard = w.Clock.Stamp().Short()
			} else if n == 20 {
				w.Drop(uint32(id), c)
			}
		}
		w.live(w.Clock.Tick(), false, true)
	}
	w.live(31*time.Second, false, true)
	require.Contains(t, w.held(), network0)
}

// TestABusyLoopNoticesASilenceInTime asks 6,000 connections, 192 of them in each tick. Meanwhile
// the silence lasts longer, and is counted again.
func TestABusyLoopNoticesASilenceInTime(t *testing.T) {
	w := newTown(t, 5400, 600)
	w.live(60*time.Second, true, true)
	w.steps = 3
	w.live(10*time.Second, true, false)
	require.Contains(t, w.held(), reap.Group{Remote: netip.MustParsePrefix("10.1.0.0/16")})
	w.live(40*time.Second, true, false)
	require.Empty(t, w.closed)
}

// TestBusyLoopsCountTogether has a group of 20 connections of this loop, and of another one that
// counts its own for the first Count of a silence only, when there is a second one. This loop is
// late for the first.
func TestBusyLoopsCountTogether(t *testing.T) {
	for others, held := range map[int]bool{3: false, 20: true} {
		w := newTown(t, 20, 5900)
		w.offer(2, map[reap.Group]int{network0: 20})
		w.live(60*time.Second, true, true)
		w.steps = 3
		group := w.sample(network0).group
		group.size.Add(20)
		w.live(30*time.Second, true, true)
		var first *outage.Count
		for w.now < mono.Time(120*time.Second) {
			w.live(w.Clock.Tick(), false, true)
			if c := group.monitor.State().Count; first == nil {
				first = c
			} else if c != first && others > 0 {
				first.Add(others)
				others = 0
			}
		}
		require.Equal(t, held, slices.Contains(w.held(), network0))
	}
}

// TestAGroupIsHeardWhileABusyLoopAsksOthers has a group that is heard after its members were asked.
func TestAGroupIsHeardWhileABusyLoopAsksOthers(t *testing.T) {
	for silence := 1600 * time.Millisecond; silence < 4*time.Second; silence += 800 * time.Millisecond {
		w := newTown(t, 100, 300, 5900)
		w.live(60*time.Second, true, true, true)
		w.steps = 3
		w.live(silence, true, false, true)
		require.Empty(t, w.held())
		w.live(6*time.Second, true, true, true)
		require.Zero(t, w.Stats(&Counters{}, true).GroupSuspensions, "after %v", silence)
	}
}

// TestTheKernelIsSeldomAskedAboutGroups: each answer is a call of the system.
func TestTheKernelIsSeldomAskedAboutGroups(t *testing.T) {
	w := newTownOf(newAskingPort(t, testConfig{ReadTimeout: 32 * time.Second, Tick: 100 * time.Millisecond}), 600, 600)
	w.setName("proxy")
	w.live(60*time.Second, true, true)
	one := w.sample(reap.Group{Name: "proxy"})
	require.Len(t, one.members, sampleAsked)
	asks := func(d time.Duration, lives bool) int {
		w.heards = 0
		w.live(d, lives, true)
		return w.heards
	}
	require.Less(t, asks(4*time.Second, true), 100)
	one.group.hear(w.now.Add(time.Second)) // as another shard does
	require.Zero(t, asks(time.Second, true))
	require.Less(t, asks(20*time.Second, false), 20*sampleAsked+1200, "each other connection once")
	require.NotEmpty(t, w.held())
	one.group.gone.Store(true)
	w.live(time.Second, true, true)
	require.Zero(t, one.size.Load(), "it is not watched any more")
}

// TestOneKindOfGroupsDisplacesNoOther has a small group of one name among more networks than are
// watched, each of which is larger. The connections were opened in turn.
func TestOneKindOfGroupsDisplacesNoOther(t *testing.T) {
	const networks, size = 40, 60
	w := newTown(t, networks*size)
	w.path = func(c *testConn) (local, remote netip.Addr) {
		id := w.ids[c]
		if w.group[id] == 0 {
			return local, netip.AddrFrom4([4]byte{9, byte(id), byte(id >> 8), 1})
		}
		return local, netip.AddrFrom4([4]byte{10, byte(id % networks), 0, byte(id / networks)})
	}
	for id := range w.group {
		if w.group[id] = min(id%size, 1); w.group[id] == 0 {
			w.Groups.SetName(uint32(id), "zone")
		}
	}
	w.live(60*time.Second, true, true)
	require.Len(t, w.watched(), maxGroups[2]+1)
	w.live(31*time.Second, false, true)
	require.Contains(t, w.held(), reap.Group{Name: "zone"})
}

// TestAGroupIsHeldAllTheSame silences a network or a name of which something was special.
func TestAGroupIsHeldAllTheSame(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, w *town) reap.Group{
		"one has a far shorter timeout of its own": func(t *testing.T, w *town) reap.Group {
			require.NoError(t, w.SetLimits(95, w.conns[95], reap.ConnLimits{ReadTimeout: time.Second}))
			return network0
		},
		"steps took minutes before an Update": func(t *testing.T, w *town) reap.Group {
			require.NoError(t, w.update(func(cfg *testConfig) { cfg.ReadTimeout = 24 * time.Hour }))
			w.live(60*time.Second, true, true)
			require.NoError(t, w.update(func(cfg *testConfig) { cfg.ReadTimeout = 32 * time.Second }))
			w.live(30*time.Second, true, true)
			return network0
		},
		"holds were off before an Update": func(t *testing.T, w *town) reap.Group {
			require.NoError(t, w.update(func(cfg *testConfig) { cfg.OutageGrace = -1 }))
			w.live(time.Second, true, true)
			require.NoError(t, w.update(func(cfg *testConfig) { cfg.OutageGrace = 0 }))
			return network0
		},
		"all groups ended, as by an Update that sets no idle timeout": func(_ *testing.T, w *town) reap.Group {
			w.setName("proxy")
			w.live(60*time.Second, true, true)
			w.Groups.end()
			return reap.Group{Name: "proxy"}
		},
	} {
		w := newTown(t, 48, 48)
		group := prepare(t, w)
		w.live(60*time.Second, true, true)
		w.live(31*time.Second, false, true)
		require.Contains(t, w.held(), group, name)
	}
}

// TestAGroupEndsWithItsConnections closes the connections of a group that is held. A name that is
// taken away ends its group as well.
func TestAGroupEndsWithItsConnections(t *testing.T) {
	for _, closes := range []bool{true, false} {
		w := newTown(t, 48, 48)
		w.setName("proxy")
		w.live(60*time.Second, true, true)
		w.live(20*time.Second, false, true)
		require.Contains(t, w.held(), reap.Group{Name: "proxy"})
		if closes {
			for id, c := range w.conns[:48] {
				w.Drop(uint32(id), c)
			}
		} else {
			w.setName("")
		}
		w.live(5*time.Second, false, true)
		require.Empty(t, w.held())
		require.Empty(t, w.Groups.names, "the next connection has none")
	}
}

// TestALoggerMayAskForStats calls Stats for each warning about a group.
func TestALoggerMayAskForStats(t *testing.T) {
	w := newTown(t, 48, 48)
	asked := 0
	require.NoError(t, w.update(func(cfg *testConfig) {
		cfg.Logger = slog.New(slog.NewTextHandler(writer(func() {
			w.Stats(&Counters{}, true)
			asked++
		}), nil))
	}))
	logging.Of(w.Settings().Logger).Flush() // before the clock of the test moves
	asked = 0
	w.live(60*time.Second, true, true)
	w.live(31*time.Second, false, true)
	w.Report(outage.Finding{})
	logging.Of(w.Settings().Logger).Flush()
	require.Positive(t, asked)
}

// A writer is called for each line of a log.
type writer func()

func (w writer) Write(b []byte) (int, error) { w(); return len(b), nil }

// TestHandshakesAreNotHeldByGroups has connections that do not get on, and others that are silent.
func TestHandshakesAreNotHeldByGroups(t *testing.T) {
	w := newTown(t, 48, 48)
	w.live(60*time.Second, true, true)
	w.live(20*time.Second, false, true)
	all := w.Groups.awayOf(0, w.conns[0], w.Outages.At(w.now), w.now)
	lim := verdict.Limits{Handshake: 30 * time.Second, Read: 30 * time.Second, Hold: time.Hour, Tick: w.Clock.Tick(), Horizon: time.Hour}
	facts := verdict.Facts{Opened: verdict.At(w.now.Add(-31 * time.Second)), Heard: verdict.At(w.now.Add(-31 * time.Second))}
	require.Equal(t, reap.NoHandshake, lim.Judge(&facts, all, w.now).Reason)
	facts.Ready = true
	require.True(t, lim.Judge(&facts, all, w.now).PutOff, "an idle timeout is held")
}

// TestGroupsEndWithTheirLimits switches holds off during one.
func TestGroupsEndWithTheirLimits(t *testing.T) {
	w := newTown(t, 48, 48)
	w.live(40*time.Second, true, true)
	w.live(20*time.Second, false, true)
	require.NotEmpty(t, w.held())
	require.NoError(t, w.update(func(cfg *testConfig) { cfg.OutageGrace = -1 }))
	w.live(time.Second, false, true)
	require.Empty(t, w.held())
	require.Empty(t, w.Groups.list)
	w.live(13*time.Second, false, true)
	require.Len(t, w.closed, 48)
}

func TestNamesOfGroups(t *testing.T) {
	all := groupsOf(netip.MustParseAddr("::ffff:192.0.2.1"), netip.MustParseAddr("2001:db8:1:2:3::4"), "proxy")
	for i, want := range []string{"group proxy", "local 192.0.2.1", "remote 2001:db8:1:2::/64", "remote 2001:db8:1::/48", "remote 2001:db8::/32", "remote ::/0"} {
		require.Equal(t, want, fmt.Sprint(all[i]))
	}
	require.Equal(t, "all", reap.Group{}.String())
	require.Equal(t, [6]reap.Group{}, groupsOf(netip.Addr{}, netip.Addr{}, ""), "a unix socket")
}

// TestOverlappingSilencesCountOnce has silences of all connections besides those of a group.
func TestOverlappingSilencesCountOnce(t *testing.T) {
	w := newTown(t, 48, 48)
	w.live(40*time.Second, true, true)
	from := w.now
	w.live(20*time.Second, false, true)
	for _, since := range []mono.Time{from.Add(-time.Minute), from.Add(time.Minute)} {
		away := w.Groups.awayOf(0, w.conns[0], &verdict.Away{Holds: []mono.Time{since}}, w.now).Group
		require.Len(t, away.Holds, 2)
		require.InDelta(t, int64(min(since, from)), int64(away.Holds[0]), float64(time.Second))
	}
	require.Empty(t, w.Groups.awayOf(95, w.conns[95], &verdict.Away{}, w.now).Group.Holds, "of the other network")
	w.conns[0].Front.Heard = w.Clock.Stamp().Short()
	w.live(6*time.Second, false, true)
	known := verdict.Outages{{From: from, To: from.Add(10 * time.Second), Length: 10 * time.Second}}
	away := w.Groups.awayOf(0, w.conns[0], &verdict.Away{All: known}, w.now).Group
	require.Empty(t, away.Holds)
	require.InDelta(t, 20*time.Second, away.All.Within(0, w.now), float64(3*time.Second))
	require.Len(t, known, 1)
	w.live(10*time.Second, true, true)
	require.Same(t, away, w.Groups.awayOf(0, w.conns[0], away, w.now.Add(2*time.Hour)), "it is forgotten")
}

// TestTheLargestGroupsAreWatched offers more networks than are watched, from two shards. A silent
// group stays for a time when larger ones come, if it has connections.
func TestTheLargestGroupsAreWatched(t *testing.T) {
	w := newTown(t)
	network := func(n int) reap.Group {
		return reap.Group{Remote: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), 0, 0}), 16)}
	}
	offer := func(from, to int) {
		for shard := range uint32(2) {
			counts := make(map[reap.Group]int)
			for n := from; n < to; n++ {
				counts[network(n)] = groupBusy/2 + n
			}
			w.offer(shard, counts)
		}
	}
	offer(0, 40)
	w.groups.choose(w.now, 0, w.watched())
	for n := range 40 {
		require.Equal(t, n >= 8, w.watched()[network(n)] != nil, "network %d of 40", n)
	}

	silent := w.watched()[network(10)]
	silent.until.Store(int64(w.now.Add(time.Minute)))
	silent.size.Store(1)
	w.watched()[network(11)].until.Store(int64(w.now.Add(time.Minute)))
	before := w.watched()
	offer(100, 140)
	w.groups.choose(w.now, 0, w.watched())
	require.Equal(t, silent, w.watched()[network(10)])
	require.Len(t, w.watched(), maxGroups[2]+1)
	for name, g := range before {
		require.Equal(t, w.watched()[name] != g, g.gone.Load(), "%v", name)
	}
	w.groups.choose(w.now.Add(time.Minute), 0, w.watched())
	require.Len(t, w.watched(), maxGroups[2])
}

// TestAGroupCountsWhenItIsLargeAndKnown steps a group that hears nothing. A silence counts from the
// time when it is known how long silences are, while the group is large enough.
func TestAGroupCountsWhenItIsLargeAndKnown(t *testing.T) {
	w := newTown(t)
	g, rule, now := newGroup(network0, 0), w.groupRule(), mono.Time(0)
	counts := func(d time.Duration) (found bool) {
		for end := now.Add(d); now < end; {
			now = now.Add(rule.Tick)
			found = g.step(now, rule).Count || found
		}
		return found
	}
	g.size.Store(groupBusy)
	require.False(t, counts(rule.Shortest), "it is new")
	require.True(t, counts(rule.Shortest))
	count := g.monitor.State().Count
	g.hear(count.To.Add(-time.Second))
	require.Greater(t, g.news(), count.To, "a byte may have been on its way")
	g.size.Store(groupBusy - 1)
	require.False(t, counts(rule.Tick))
	require.Nil(t, g.monitor.State().Count, "the rest is too few")
	require.Zero(t, g.effect(&rule))
	g.size.Store(groupBusy)
	require.False(t, counts(rule.Shortest), "it is new again")
}

// TestOnlyBusyMembersCount has members of a sample that were busy and others that were not. The
// kernel may date a byte later than it came.
func TestOnlyBusyMembersCount(t *testing.T) {
	w := newTown(t, 8)
	w.now = w.now.Add(time.Minute)
	count := &outage.Count{From: w.now.Add(-20 * time.Second), To: w.now.Add(-10 * time.Second)}
	in := count.To.Add(-time.Second)
	one := &sample{group: newGroup(network0, 0)}
	for _, m := range []struct{ opened, heard mono.Time }{
		{0, in}, {0, count.From}, {0, count.To.Add(heardSlack)}, // busy
		{0, count.From - 1}, {0, count.To.Add(heardSlack) + 1}, {count.To.Add(-5 * time.Second), in},
	} {
		one.members = append(one.members, member{opened: w.Clock.Pack(m.opened), heard: m.heard})
	}
	require.Equal(t, 3, w.Groups.busy(one, count, w.now))
	one.monitor.Init(count.To)
	rule := w.groupRule()
	one.monitor.Step(w.now, w.now, count.To, rule)
	one.verified = one.monitor.State().Count
	w.Groups.list = append(w.Groups.list, one)
	for range 3 {
		w.Groups.verify = 1
		w.Groups.verifySome(w.now)
	}
	require.Equal(t, rule.Busy-3, one.monitor.State().Count.Enough(), "each counts once")
}

// TestALoopThatIsLateAtTheEndOfAHold looks at no connection for a while, before which all held
// verdicts would have been executed.
func TestALoopThatIsLateAtTheEndOfAHold(t *testing.T) {
	w := newTown(t, 48, 48)
	w.live(60*time.Second, true, true)
	w.live(54*time.Second, false, true)
	for range 200 {
		w.now = w.now.Add(w.Clock.Tick())
		for _, c := range w.conns[48:] {
			c.Front.Heard = w.Clock.Stamp().Short()
		}
		w.Move(func(mono.Time) mono.Time { return w.now })
		for w.Groups.Step() {
		}
	}
	require.Empty(t, w.held())
	require.Empty(t, w.closed)
	w.live(time.Second, false, true)
	require.Len(t, w.closed, 48)
}

// TestASilenceOfAGroupDoesNotShortenOneOfAll has a group that is silent first, and then all.
func TestASilenceOfAGroupDoesNotShortenOneOfAll(t *testing.T) {
	w := newTown(t, 48, 48)
	w.live(time.Minute, true, true)
	w.live(20*time.Second, false, true)
	w.last = w.now
	for range 480 {
		w.live(w.Clock.Tick(), false, false)
		if count := w.Monitor.State().Count; count != nil {
			count.Add(count.Enough())
		}
	}
	require.Empty(t, w.closed, "verdicts are held for two limits after the last byte of all")
}

// TestOutageGraceBoundsTheSilenceOfAGroup: it is one of the silences that may hold.
func TestOutageGraceBoundsTheSilenceOfAGroup(t *testing.T) {
	w := newTownOf(newTestPort(t, testConfig{ReadTimeout: 32 * time.Second, OutageGrace: 5 * time.Second, Tick: 100 * time.Millisecond}), 48, 48)
	w.live(time.Minute, true, true)
	w.live(38*time.Second, false, true)
	require.Len(t, w.closed, 48)
}

// TestAHabitOfAGroupIsNoOutage has meters that report together every eight minutes, with timeouts
// of ten minutes and of a day, beside clients with a short one. A meter dies after five reports.
func TestAHabitOfAGroupIsNoOutage(t *testing.T) {
	w := newTown(t, 48, 60)
	for id, c := range w.conns[:48] {
		own := reap.ConnLimits{ReadTimeout: 10 * time.Minute}
		if id == 47 {
			own.ReadTimeout = 24 * time.Hour
		}
		require.NoError(t, w.SetLimits(uint32(id), c, own))
	}
	died := mono.Time(0)
	for sec := 0; len(w.closed) == 0 && sec < 2*3600; sec++ {
		w.live(time.Second, false, true)
		for id, c := range w.conns[:48] {
			if id%10 == sec%480 && (id > 0 || sec < 5*480) {
				c.Front.Heard = w.Clock.Stamp().Short()
				if id == 0 {
					died = w.now
				}
			}
		}
	}
	require.Equal(t, 10*time.Minute, w.watched()[network0].usual.timeout, "half of the group")
	require.Less(t, w.now.Sub(died), 11*time.Minute)
}

// TestNoticedOutagesOfAllAreNoHabitOfAGroup has four outages of all in a row. Then one network
// fails alone.
func TestNoticedOutagesOfAllAreNoHabitOfAGroup(t *testing.T) {
	w := newTown(t, 48, 48)
	w.live(60*time.Second, true, true)
	for range 4 {
		w.last = w.now
		for range 170 {
			w.live(w.Clock.Tick(), false, false)
			if count := w.Monitor.State().Count; count != nil {
				count.Add(count.Enough())
			}
		}
		w.last = 0
		w.live(12*time.Second, true, true)
	}
	require.EqualValues(t, 4, w.Stats(&Counters{}, true).Suspensions)
	w.live(8*time.Second, true, true)
	w.live(41*time.Second, false, true)
	require.Empty(t, w.closed)
}
