package watch

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/network"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

const (
	// groupBusy is the number of connections of a group that must have been busy together before
	// their silence counts. It is larger than outage.MinBusy, because there are many groups.
	groupBusy = 24
	// groupSteps is the number of steps in the shortest idle timeout. Where the kernel has to be
	// asked it is askedSteps, and a step takes askedStep at least.
	groupSteps = 128
	askedSteps = 32
	askedStep  = 100 * time.Millisecond
	// sortPart is the part of the shortest idle timeout in which connections are sorted into groups
	// once, and the groups are chosen that are watched.
	sortPart = 8
)

// maxGroups bounds the groups of each kind that are watched: names, local addresses and networks.
// So one kind, and a client with many addresses, cannot displace the others.
var maxGroups = [...]int{24, 8, 32}

// Groups are connections that share a part of the way to their peers. If all of a group fall silent
// together, while others are heard, that part is probably down. Each Shard counts the connections
// of groups, has a sample of each group that is watched, and tells when it was heard: nothing is
// done for a message, or kept for a connection. The driver steps the monitors. Except for the
// atomic fields, guarded by the mutex of the Watcher.
type groups struct {
	offers   map[uint32]map[reap.Group]int // connections, by shard
	chooseAt mono.Time                     // when groups are chosen again
	due      mono.Time                     // the next step
	holds    uint64
	findings []groupFinding // to be logged

	watched atomic.Pointer[map[reap.Group]*group] // immutable
	until   atomic.Int64                          // silences of groups have an effect until then
}

type groupFinding struct {
	name  reap.Group
	found outage.Finding
}

// A group is what all shards know of it. The atomic fields, and the State of the monitor, are for
// all goroutines.
type group struct {
	name    reap.Group
	monitor outage.Monitor
	stepped mono.Time // the last step of the monitor; 0 if there is none
	settled mono.Time // the monitor learns from then on
	usual   usual

	until atomic.Int64 // silences have an effect until then
	heard atomic.Int64 // when a connection was heard last, as far as that is known
	still atomic.Int64 // a byte until then does not end the silence that was counted last
	size  atomic.Int64 // connections in the samples
	gone  atomic.Bool  // it is not watched any more
}

// news returns an instant after which a byte of a connection is news. While a silence of the
// samples counts, a byte of another connection may be later than theirs, and not end it.
func (g *group) news() mono.Time {
	last := g.heard.Load()
	if g.monitor.State().Count != nil {
		last = max(last, g.still.Load())
	}
	return mono.Time(last)
}

func (g *group) hear(at mono.Time) {
	for last := g.heard.Load(); int64(at) > last && !g.heard.CompareAndSwap(last, int64(at)); last = g.heard.Load() {
	}
}

// matters reports whether silences of the group have an effect.
func (g *group) matters(now mono.Time) bool { return int64(now) < g.until.Load() }

// groupsOf returns the groups of a connection with these addresses, and a name that may be empty:
// by the name, the address of this side, networks of three sizes around the peer, and the internet.
// The last one tells an outage of the way to all clients while probes from inside are heard.
func groupsOf(local, remote netip.Addr, name string) (all [6]reap.Group) {
	all[0].Name = name
	all[1].Local = local.Unmap().WithZone("")
	for i, bits := range [...][2]int{{32, 64}, {24, 48}, {16, 32}} {
		all[2+i].Remote = network.Of(remote, bits[0], bits[1])
	}
	if network.IsPublic(remote) {
		all[5].Remote = network.Of(remote, 0, 0)
	}
	return all
}

// kindOf returns the index in maxGroups.
func kindOf(name reap.Group) int {
	switch {
	case name.Name != "":
		return 0
	case name.Local.IsValid():
		return 1
	}
	return 2
}

// groupRule returns the rule of silences of groups. Their Tick is a step.
func (w *Watcher) groupRule() outage.Rule {
	rule := *w.Rule()
	step := rule.Shortest / groupSteps
	if w.form.AsksFirst {
		step = max(rule.Shortest/askedSteps, askedStep)
	}
	rule.Tick, rule.Busy, rule.Sums, rule.Hold = max(rule.Tick, step), groupBusy, true, rule.Hold && rule.Shortest > 0
	return rule
}

// init makes room for groups.
func (all *groups) init() {
	all.offers = make(map[uint32]map[reap.Group]int)
	all.watched.Store(new(map[reap.Group]*group))
}

func (w *Watcher) watched() map[reap.Group]*group { return *w.groups.watched.Load() }

// offer replaces what a shard has counted of its groups. The counts do not change any more.
func (w *Watcher) offer(shard uint32, counts map[reap.Group]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(counts) == 0 {
		delete(w.groups.offers, shard)
	} else {
		w.groups.offers[shard] = counts
	}
}

// choose chooses the largest groups of each kind. If there is room, others go on to be watched
// while their silences have an effect on their connections, and large ones that were not heard
// since an instant.
func (all *groups) choose(now, since mono.Time, before map[reap.Group]*group) {
	type sized struct {
		name reap.Group
		n    int
	}
	sums := make(map[reap.Group]int)
	for _, counts := range all.offers {
		for name, n := range counts {
			sums[name] += n
		}
	}
	var list []sized
	for name, n := range sums {
		if n >= groupBusy {
			list = append(list, sized{name, n})
		}
	}
	slices.SortFunc(list, func(a, b sized) int {
		return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.name.String(), b.name.String()))
	})
	room, next := maxGroups, make(map[reap.Group]*group)
	for _, one := range list {
		if kind := kindOf(one.name); room[kind] > 0 {
			room[kind]--
			if next[one.name] = before[one.name]; next[one.name] == nil {
				next[one.name] = newGroup(one.name, now)
			}
		}
	}
	kept := maxGroups
	for name, g := range before {
		if next[name] != nil {
			continue
		}
		// Some may have been reaped in a silence. Their places are kept until the group is heard.
		size, isSilent := g.size.Load(), mono.Time(g.heard.Load()) < since
		if kind := kindOf(name); (isSilent && size >= groupBusy || g.matters(now) && size > 0) && kept[kind] > 0 {
			kept[kind]--
			next[name] = g
		} else {
			g.gone.Store(true)
		}
	}
	all.watched.Store(&next)
}

func newGroup(name reap.Group, now mono.Time) *group {
	g := &group{name: name}
	g.monitor.Init(now)
	return g
}

// stepGroups looks for groups that have fallen silent, or are heard again. The caller holds mu.
func (w *Watcher) stepGroups(now mono.Time) {
	all, rule := &w.groups, w.groupRule()
	if now < all.due || len(all.offers) == 0 && len(w.watched()) == 0 {
		return
	}
	all.due = now.Truncate(rule.Tick).Add(rule.Tick)
	if now >= all.chooseAt {
		period := rule.Shortest / sortPart
		all.chooseAt = now.Add(period)
		all.choose(now, now.Add(-period), w.watched())
	}
	until := int64(0)
	silent := w.Monitor.State().Silent // not noticed by a group that is less busy than all together
	for name, g := range w.watched() {
		g.monitor.Known = silent
		found := g.step(now, rule)
		if found.Held > 0 {
			all.holds++
		}
		if found.Held > 0 || found.Outage.Length > 0 && found.Silent {
			all.findings = append(all.findings, groupFinding{name, found})
		}
		g.until.Store(g.effect(&rule))
		until = max(until, g.until.Load())
	}
	all.until.Store(until)
}

// reportGroups logs the findings about groups since the last call.
func (w *Watcher) reportGroups() {
	w.mu.Lock()
	findings := w.groups.findings
	w.groups.findings = nil
	w.mu.Unlock()
	slices.SortFunc(findings, func(a, b groupFinding) int { return strings.Compare(a.name.String(), b.name.String()) })
	for _, f := range findings {
		switch {
		case f.found.Held > 0:
			w.Warn(&w.warnings.group, "nothing is heard from a group of connections that were busy until now: "+
				"verdicts about their peers are suspended", "group", f.name, "silent", f.found.Held, "groups", len(findings))
		case f.found.GivenUp:
			w.Warn(&w.warnings.group, "nothing was heard from a group of connections for two timeouts: "+
				"verdicts about their peers go on", "group", f.name, "groups", len(findings))
		default:
			w.Warn(&w.warnings.group, "the silence of a group of connections is over: "+
				"verdicts about their peers are postponed by its length", "group", f.name, "outage", f.found.Outage.Length, "groups", len(findings))
		}
	}
}

// step tells the monitor of a group when it was heard, if it is large enough.
func (g *group) step(now mono.Time, rule outage.Rule) (found outage.Finding) {
	size, heard := g.size.Load(), mono.Time(g.heard.Load())
	rule.Usual = cmp.Or(g.usual.timeout, rule.Usual)
	switch {
	case size < groupBusy && !g.monitor.State().Held():
		if g.stepped != 0 {
			g.monitor.Resume(now) // ends a Count and a hold
			g.stepped = 0
		}
		return found
	case g.stepped == 0: // clients that connect together are silent in other ways than later
		g.settled = now.Add(rule.Shortest)
		fallthrough
	case now < g.settled:
		g.monitor.Resume(heard)
	default:
		found = g.monitor.Step(g.stepped, now, heard, rule)
	}
	if found.Count {
		from := g.monitor.State().Count.To
		g.still.Store(int64(from.Add(now.Sub(from) / 2)))
	}
	g.stepped = now
	return found
}

// effect returns until when silences of the group have an effect, 0 if there are none.
func (g *group) effect(rule *outage.Rule) int64 {
	state := g.monitor.State()
	if state.Count != nil {
		return int64(verdict.Never)
	}
	if n := len(state.Silent); n > 0 {
		last := state.Silent[n-1]
		return int64(last.To.Add(verdict.Timeouts(rule.Memory) + 2*last.Length))
	}
	return 0
}

// resumeGroups begins again after a time without connections. The caller holds mu.
func (w *Watcher) resumeGroups(now mono.Time) {
	for _, g := range w.watched() {
		g.monitor.Resume(now)
		g.stepped = 0
	}
}

// held returns the silences for which verdicts are suspended. The caller holds mu.
func (w *Watcher) held(now mono.Time) (holds []reap.Suspension) {
	add := func(name reap.Group, state *outage.State) {
		if state.Held() {
			holds = append(holds, reap.Suspension{Group: name, For: now.Sub(state.Count.To)})
		}
	}
	add(reap.Group{}, w.Monitor.State())
	for name, g := range w.watched() {
		add(name, g.monitor.State())
	}
	slices.SortFunc(holds, func(a, b reap.Suspension) int {
		return cmp.Or(cmp.Compare(b.For, a.For), strings.Compare(a.Group.String(), b.Group.String()))
	})
	return holds
}

// Silences returns what is known of the groups.
func (w *Watcher) Silences() (states []*outage.State) {
	for _, g := range w.watched() {
		states = append(states, g.monitor.State())
	}
	return states
}
