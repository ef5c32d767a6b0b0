package watch

import (
	"cmp"
	"net/netip"
	"slices"
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
	// maxGroups bounds the groups.
	maxGroups = 64
)

// Groups are connections that share a part of the way to their peers. If all of a group fall silent
// together, while others are heard, that part is probably down. Each Shard has a sample of each
// group, and tells when it was heard: nothing is done for a message, or kept for a connection. The
// driver steps the monitors. Not safe for concurrent use.
type groups struct {
	known map[reap.Group]*group
	list  []*group
	evict int // the group that made room last
	due   mono.Time
	holds uint64
	until atomic.Int64 // silences of groups have an effect until then
}

// A group is what all shards know of it. The atomic fields, and the State of the monitor, are for
// all goroutines.
type group struct {
	name    reap.Group
	monitor outage.Monitor
	stepped mono.Time // the last step of the monitor; 0 if there is none

	until atomic.Int64 // silences have an effect until then
	heard atomic.Int64 // when a connection was heard last, as far as that is known
	still atomic.Int64 // a byte until then does not end the silence that was counted last
	size  atomic.Int64 // connections in the samples
	gone  atomic.Bool  // it has made room for another group
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

// hear says that a connection of the group was heard.
func (g *group) hear(at mono.Time) {
	for last := g.heard.Load(); int64(at) > last && !g.heard.CompareAndSwap(last, int64(at)); last = g.heard.Load() {
	}
}

// groupsOf returns the groups of a connection with these addresses, and a name that may be empty:
// by the address of this side, and by networks of three sizes around the peer.
func groupsOf(local, remote netip.Addr, name string) (all [5]reap.Group) {
	all[0].Local = local.Unmap().WithZone("")
	for i, bits := range [...][2]int{{32, 64}, {24, 48}, {16, 32}} {
		all[1+i].Remote = network.Of(remote, bits[0], bits[1])
	}
	all[4].Name = name
	return all
}

// groupRule returns the rule of silences of groups. Their Tick is a step.
func (w *Watcher) groupRule() outage.Rule {
	rule := *w.Rule()
	step := rule.Shortest / groupSteps
	if w.form.AsksFirst {
		step = max(rule.Shortest/askedSteps, askedStep)
	}
	rule.Tick, rule.Busy, rule.Hold = max(rule.Tick, step), groupBusy, rule.Hold && rule.Shortest > 0
	return rule
}

// group returns a group, or nil if there is no room for it. A new group may take the place of one
// that is too small to be watched: the larger it is, the sooner it grows large enough to stay.
func (w *Watcher) group(name reap.Group, now mono.Time) *group {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := &w.groups
	if g := all.known[name]; g != nil {
		return g
	}
	if all.known == nil {
		all.known = make(map[reap.Group]*group)
	}
	g := &group{name: name}
	g.monitor.Init(now)
	if len(all.list) < maxGroups {
		all.list = append(all.list, g)
		all.known[name] = g
		return g
	}
	for range maxGroups {
		all.evict = (all.evict + 1) % maxGroups
		if old := all.list[all.evict]; old.size.Load() < groupBusy && !old.matters(now) {
			old.gone.Store(true)
			delete(all.known, old.name)
			all.list[all.evict], all.known[name] = g, g
			return g
		}
	}
	return nil
}

// stepGroups looks for groups that have fallen silent, or are heard again. The caller holds mu.
func (w *Watcher) stepGroups(now mono.Time) {
	all, rule := &w.groups, w.groupRule()
	if now < all.due || len(all.list) == 0 {
		return
	}
	all.due = now.Truncate(rule.Tick).Add(rule.Tick)
	until := int64(0)
	for _, g := range all.list {
		if found := g.step(now, rule); found.Held > 0 {
			all.holds++
			w.Warn(&w.warnings.group, "nothing is heard from a group of connections that were busy until now: "+
				"verdicts about their peers are held", "group", g.name, "silent", found.Held)
		} else if found.Outage.Length > 0 && found.Silent {
			w.Warn(&w.warnings.group, "the silence of a group of connections is over: "+
				"verdicts about their peers are put off by its length", "group", g.name, "outage", found.Outage.Length)
		}
		g.until.Store(g.effect(&rule))
		until = max(until, g.until.Load())
	}
	all.until.Store(until)
}

// step tells the monitor of a group when it was heard, if it is large enough.
func (g *group) step(now mono.Time, rule outage.Rule) (found outage.Finding) {
	switch {
	case g.size.Load() < groupBusy && !g.monitor.State().Held():
		if g.stepped != 0 {
			g.monitor.Resume(now) // ends a Count
			g.stepped = 0
		}
		return found
	case g.stepped == 0:
		g.hear(now)
		g.monitor.Resume(now)
	default:
		found = g.monitor.Step(g.stepped, now, mono.Time(g.heard.Load()), rule)
	}
	if found.Count {
		from := g.monitor.State().Count.To
		g.still.Store(int64(from.Add(now.Sub(from) / 2)))
	}
	g.stepped = now
	return found
}

// matters reports whether silences of the group have an effect.
func (g *group) matters(now mono.Time) bool { return int64(now) < g.until.Load() }

// effect returns until when silences of the group have an effect, 0 if there are none.
func (g *group) effect(rule *outage.Rule) int64 {
	state := g.monitor.State()
	if state.Count != nil {
		return int64(verdict.Never)
	}
	if n := len(state.Silent); n > 0 {
		last := state.Silent[n-1]
		return int64(last.To.Add(verdict.MaxTimeouts*rule.Memory + 2*last.Length))
	}
	return 0
}

// held returns the silences for which verdicts are held. The caller holds mu.
func (w *Watcher) held(now mono.Time) (holds []reap.Hold) {
	add := func(name reap.Group, state *outage.State) {
		if state.Held() {
			holds = append(holds, reap.Hold{Group: name, For: now.Sub(state.Count.To)})
		}
	}
	add(reap.Group{}, w.Monitor.State())
	for _, g := range w.groups.list {
		add(g.name, g.monitor.State())
	}
	slices.SortStableFunc(holds, func(a, b reap.Hold) int { return cmp.Compare(b.For, a.For) })
	return holds
}

// Silences returns what is known of the groups while that has an effect.
func (w *Watcher) Silences() (states []*outage.State) {
	if w.groups.until.Load() == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.groups.list {
		states = append(states, g.monitor.State())
	}
	return states
}
