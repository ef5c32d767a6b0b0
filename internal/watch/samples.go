package watch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/kernel"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

const (
	// sampleSeen is the largest sample of a front end that sees messages, sampleAsked that of one
	// that has to ask the kernel.
	sampleSeen  = 512
	sampleAsked = 256
	// Before a silence of a sample counts, others of the group are asked as well: verifySeen and
	// verifyAsked connections, verifiedAtOnce of them in a part of a step.
	verifySeen     = 1 << 16
	verifyAsked    = 1 << 11
	verifiedAtOnce = 1 << 6
	// sortedPerStep is the number of connections that are sorted into groups in a step, and
	// sortedAtOnce in a part of it.
	sortedPerStep = 1 << 10
	sortedAtOnce  = 1 << 6
	// maxCounts bounds the groups of a shard that are counted, and maxOffers the networks that it
	// offers, except for some of the same size.
	maxCounts = 1 << 12
	maxOffers = 1 << 7
	// heardSlack is the time by which a byte may seem later than it was.
	heardSlack = 2 * kernel.CoarsestStep
)

// Samples are what a Shard knows of the groups of its connections. As safe for concurrent use as
// the Shard.
type samples[C any] struct {
	shard *Shard[C]
	names map[uint32]string // of SetGroup

	list   []*sample
	turn   int       // the sample that is asked next
	before mono.Time // when the last step began
	began  mono.Time // when this one began
	due    mono.Time // when the next one begins

	counts map[reap.Group]int // the connections in this pass
	idle   idleCount          // of the connections sorted so far
	sorted uint32             // the connection that is sorted next
	left   int                // connections to sort in this step
	pass   mono.Time          // when the next pass begins, or before now

	shortest time.Duration // Rule.Shortest in the last part of a step

	verify int    // connections to ask before the members are counted
	asked  uint32 // the one that was asked last
}

// A sample has some of the connections of a group: those with the lowest ranks. Connections that
// were opened together often send together, so a sample in another order would be silent at times.
type sample struct {
	*group
	members []member
	highest float64       // rank of the members, if there is no room for more
	counted *outage.Count // the last one with the busy members
	busy    int           // so many members are in the sum of the Counts of its silence
	// verified is the one that had begun when others of the group were asked.
	verified *outage.Count
	noted    mono.Time // the pass after which the group was told what is usual
}

// A member is a connection in a sample.
type member struct {
	id     uint32
	opened mono.Packed
	rank   float64   // by chance
	heard  mono.Time // as far as it is known
}

// SetName gives a connection the name of a group, or takes it back if the name is empty.
func (all *samples[C]) SetName(id uint32, name string) {
	if name == "" {
		delete(all.names, id)
		return
	}
	all.names[id] = name
}

func (all *samples[C]) groupsOf(id uint32, c *Conn[C]) [6]reap.Group {
	local, remote := all.shard.port.Path(c)
	return groupsOf(local, remote, all.names[id])
}

// Due returns when Step has something to do.
func (all *samples[C]) Due() mono.Time {
	switch {
	case all.isStepping() || all.isShorter(all.shard.Watcher.Rule()):
		return 0
	case len(all.list) == 0:
		return max(all.due, all.pass)
	default:
		return all.due
	}
}

func (all *samples[C]) isStepping() bool { return all.left+all.verify > 0 || all.turn < len(all.list) }

// isShorter reports whether the shortest idle timeout has become shorter since the last part of a
// step. A connection of another shard may have got it.
func (all *samples[C]) isShorter(rule *outage.Rule) bool {
	return verdict.Shorter(all.shortest, rule.Shortest) != all.shortest
}

// Step does a part of a step, if one is due. It reports whether there is more.
func (all *samples[C]) Step() (more bool) {
	s := all.shard
	now, rule := s.clock.Elapsed(), s.Watcher.groupRule()
	if all.isShorter(&rule) { // the next step and pass would be late
		all.due, all.pass = 0, 0
	}
	all.shortest = rule.Shortest
	switch {
	case !rule.Hold:
		all.end()
		all.due = now.Add(max(rule.Longest, time.Minute))
	case all.left > 0:
		all.sortSome(now, &rule)
	case all.turn < len(all.list):
		if one := all.list[all.turn]; all.listen(one, now) {
			all.turn++
		} else {
			last := len(all.list) - 1
			all.list[all.turn], all.list = all.list[last], all.list[:last]
		}
	case all.verify > 0:
		all.verifySome(now)
	case now >= all.due:
		all.before, all.began, all.due = all.began, now, now.Truncate(rule.Tick).Add(rule.Tick)
		if all.turn = 0; now >= all.pass && s.Len() > 0 {
			all.left = sortedPerStep
		}
	}
	return all.isStepping()
}

// end ends the part of the Shard in all groups.
func (all *samples[C]) end() {
	s := all.shard
	for _, one := range all.list {
		one.size.Add(-int64(len(one.members)))
	}
	*all = samples[C]{shard: s, names: all.names, shortest: all.shortest}
	s.Watcher.offer(s.Number, nil)
}

// sortSome counts some connections for their groups, and puts them into the samples. At the end of
// a pass it offers the largest groups.
func (all *samples[C]) sortSome(now mono.Time, rule *outage.Rule) {
	s := all.shard
	watched := s.Watcher.watched()
	if all.counts == nil {
		all.counts = make(map[reap.Group]int)
	}
	for range sortedAtOnce {
		id := all.sorted
		if all.left--; id >= s.Len() {
			all.endPass(now, rule)
			return
		}
		all.sorted++
		if c := s.conns.at(id); c.Used() && s.IsJudged(id, c) {
			all.sort(id, c, watched, now)
		}
	}
}

func (all *samples[C]) endPass(now mono.Time, rule *outage.Rule) {
	s := all.shard
	if len(all.counts) > maxOffers {
		counts := slices.Sorted(maps.Values(all.counts))
		least := counts[len(counts)-maxOffers]
		maps.DeleteFunc(all.counts, func(name reap.Group, n int) bool { return n < least && name.Remote.IsValid() })
	}
	s.Watcher.offer(s.Number, all.counts)
	s.Watcher.noteUsual(s.Number, &all.idle)
	all.counts, all.idle, all.sorted, all.left, all.pass = nil, idleCount{}, 0, 0, now.Add(rule.Shortest/sortPart)
}

// sort counts a connection for its groups. If there are too many groups, each loses one (Misra and
// Gries, 1982): no large group is lost. The connection joins samples, unless it is silent for so
// long that it says nothing.
func (all *samples[C]) sort(id uint32, c *Conn[C], watched map[reap.Group]*group, now mono.Time) {
	s := all.shard
	counts := all.counts
	all.idle.add(s.LimitsOf(c).ShortestIdle())
	heard := now
	if !s.asks { // otherwise the kernel says it later
		heard = s.port.Heard(c, now)
	}
	joins := all.speaks(id, c, heard, now)
	for _, name := range all.groupsOf(id, c) {
		if name == (reap.Group{}) {
			continue
		}
		if counts[name]++; len(counts) > maxCounts {
			for name := range counts {
				if counts[name]--; counts[name] == 0 {
					delete(counts, name)
				}
			}
		}
		if g := watched[name]; g != nil && joins {
			all.join(g, member{id, c.Opened(), s.Random(id, c), now})
		}
	}
}

// speaks reports whether a connection was heard in the time in which a living one has to be, or a
// little before. One that was not, or has no such limit, says nothing about its group. Times in
// which it could not be heard do not count: after an outage the next one may follow at once.
func (all *samples[C]) speaks(id uint32, c *Conn[C], heard, now mono.Time) bool {
	limit := all.shard.LimitsOf(c).LongestIdle()
	most := limit + limit/8
	return limit > 0 && (now.Sub(heard) <= most || all.ran(id, c, heard, now) <= most)
}

// join adds a connection to a sample, or puts it in the place of another one.
func (all *samples[C]) join(g *group, m member) {
	i := slices.IndexFunc(all.list, func(one *sample) bool { return one.group == g })
	if i < 0 {
		i = len(all.list)
		all.list = append(all.list, &sample{group: g})
	}
	one, most := all.list[i], sampleSeen
	if all.shard.asks {
		most = sampleAsked
	}
	isFull := len(one.members) == most
	is := func(o member) bool { return o.id == m.id && o.opened == m.opened }
	if isFull && m.rank >= one.highest || slices.ContainsFunc(one.members, is) {
		return
	}
	if isFull {
		one.drop(slices.IndexFunc(one.members, func(o member) bool { return o.rank == one.highest }))
	}
	one.members = append(one.members, m)
	one.highest = slices.MaxFunc(one.members, func(a, b member) int { return cmp.Compare(a.rank, b.rank) }).rank
	one.size.Add(1)
}

func (one *sample) drop(i int) {
	last := len(one.members) - 1
	one.members[i] = one.members[last]
	one.members = one.members[:last]
	one.size.Add(-1)
}

// listen finds out when the members of a sample were heard. It reports false if the sample is not
// needed any more.
func (all *samples[C]) listen(one *sample, now mono.Time) (needed bool) {
	for one.gone.Load() && len(one.members) > 0 {
		one.drop(0)
	}
	if len(one.members) == 0 { // a silence may have counted members that join again
		return one.monitor.State().Count != nil && !one.gone.Load()
	}
	if one.noted != all.pass {
		one.noted = all.pass
		all.noteUsual(one)
	}
	isHeard, count := all.hear(one, now), one.monitor.State().Count
	switch {
	case isHeard:
	case count == nil: // a member that is silent for so long says nothing about the group
		for i := len(one.members) - 1; i >= 0; i-- {
			if m := &one.members[i]; all.isIn(one, m) && !all.speaks(m.id, all.shard.conns.at(m.id), m.heard, now) {
				one.drop(i)
			}
		}
	case count != one.counted:
		one.verified = count
		all.verify = min(all.mostVerified(), int(all.shard.Len()))
	}
	return true
}

// noteUsual tells a group what is usual among the members of its sample. Those that are closed, or
// have another name now, make room: hear stops at the first member that was heard.
func (all *samples[C]) noteUsual(one *sample) {
	s, count := all.shard, idleCount{}
	for i := len(one.members) - 1; i >= 0; i-- {
		if m := &one.members[i]; all.isIn(one, m) {
			count.add(s.LimitsOf(s.conns.at(m.id)).ShortestIdle())
		} else if _, reaped := s.reapedSince(mono.Time(one.heard.Load()), m.id, m.opened); !reaped {
			one.drop(i)
		}
	}
	s.Watcher.noteUsualOf(one.group, s.Number, &count)
}

// hear finds out when the members of a sample were heard, until it finds one that was since the
// step before; then it reports true, as it does if another shard has found one. It drops those that
// are closed, or have another name now.
func (all *samples[C]) hear(one *sample, now mono.Time) bool {
	s := all.shard
	last, latest := one.news(), mono.Time(0)
	isKnown := s.asks && last > all.before // and the kernel need not be asked
	for i := 0; i < len(one.members); i++ {
		m := &one.members[i]
		if !all.isIn(one, m) {
			if heard, reaped := s.reapedSince(mono.Time(one.heard.Load()), m.id, m.opened); reaped {
				m.heard = heard
				continue
			}
			one.drop(i)
			i--
			continue
		}
		if isKnown {
			m.heard = max(m.heard, last)
			continue
		}
		m.heard = s.port.Heard(s.conns.at(m.id), now)
		if latest = max(latest, m.heard); m.heard > max(last, all.before) {
			one.hear(m.heard)
			one.members[0], one.members[i] = one.members[i], one.members[0]
			return true
		}
	}
	if latest > last {
		one.hear(latest)
	}
	return isKnown
}

// isIn reports whether a member belongs to its group.
func (all *samples[C]) isIn(one *sample, m *member) bool {
	s := all.shard
	c := s.conns.at(m.id)
	if c.Opened() != m.opened || !s.IsJudged(m.id, c) {
		return false
	}
	return one.name.Name == "" || one.name.Name == all.names[m.id]
}

func (all *samples[C]) mostVerified() int {
	if all.shard.asks {
		return verifyAsked
	}
	return verifySeen
}

// verifySome asks connections that may be in no sample whether groups with a Count are heard. At
// the end it counts the members that were busy.
func (all *samples[C]) verifySome(now mono.Time) {
	s := all.shard
	stride := uint32(1)
	if int(s.Len()) > all.mostVerified() { // those that were opened together often send together
		stride = strideOf(s.Len())
	}
	// Only of a connection that was heard since are the groups found: that may need the kernel.
	oldest := mono.Time(verdict.Never)
	for _, one := range all.list {
		if count := one.monitor.State().Count; count != nil && count != one.counted {
			oldest = min(oldest, one.news())
		}
	}
	for range verifiedAtOnce {
		all.asked = (all.asked + stride) % s.Len()
		c := s.conns.at(all.asked)
		if c.Used() && s.IsJudged(all.asked, c) && (s.asks || s.port.Heard(c, now) > oldest) {
			all.tell(all.asked, c, now)
		}
		if all.verify--; all.verify == 0 {
			break
		}
	}
	if all.verify == 0 {
		for _, one := range all.list {
			all.countBusy(one, now)
		}
	}
}

// countBusy counts the members of a sample that were busy before the silence about which others
// were asked. If that took so long that the silence has another Count, it hears the members again.
func (all *samples[C]) countBusy(one *sample, now mono.Time) {
	count := one.monitor.State().Count
	if count == nil || count == one.counted || !count.Continues(one.verified) {
		return
	}
	if !count.Continues(one.counted) {
		one.busy = 0
	}
	one.counted = count
	isHeard := count != one.verified && all.hear(one, now)
	if !isHeard && mono.Time(one.heard.Load()) <= count.To {
		more := max(all.busy(one, count, now)-one.busy, 0)
		one.busy += more
		count.Add(more)
	}
}

// strideOf returns a step that leads through all of n places, and through all parts of them soon.
func strideOf(n uint32) uint32 {
	stride := uint32(uint64(n)*0x9e3779b1>>32) | 1 // n divided by the golden ratio
	for gcd(stride, n) > 1 {
		stride += 2
	}
	return stride
}

func gcd(a, b uint32) uint32 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// busy returns how many members were open before the period of a Count and heard within it.
func (all *samples[C]) busy(one *sample, c *outage.Count, now mono.Time) (n int) {
	for _, m := range one.members {
		if m.heard >= c.From && m.heard <= c.To.Add(heardSlack) && all.shard.clock.Unpack(m.opened, now) <= c.From {
			n++
		}
	}
	return n
}

// tell tells the groups of a connection when it was heard, while a silence of them counts: the
// connection may be in no sample.
func (all *samples[C]) tell(id uint32, c *Conn[C], now mono.Time) {
	s := all.shard
	at, watched := mono.Time(0), s.Watcher.watched()
	for _, name := range all.groupsOf(id, c) {
		g := watched[name]
		if g == nil || g.monitor.State().Count == nil {
			continue
		}
		if at == 0 {
			at = s.port.Heard(c, now)
		}
		if at > g.news() {
			g.hear(at)
		}
	}
}

// awayOf adds to the outages the silences of the groups of a connection.
func (all *samples[C]) awayOf(id uint32, c *Conn[C], away *verdict.Away, now mono.Time) *verdict.Away {
	s := all.shard
	if int64(now) >= s.Watcher.groups.until.Load() {
		return away
	}
	whole, near, watched := *away, *away, s.Watcher.watched()
	for _, name := range all.groupsOf(id, c) {
		g := watched[name]
		if g == nil || !g.matters(now) {
			continue
		}
		state := g.monitor.State()
		near.Holds = slices.Concat(near.Holds, state.Holds(now))
		for _, o := range state.Silent {
			near.All = near.All.AddApart(o)
		}
	}
	slices.Sort(near.Holds)
	whole.Group = &near
	return &whole
}

// ran returns the time between two instants in which the server could hear the peer.
func (all *samples[C]) ran(id uint32, c *Conn[C], from, to mono.Time) time.Duration {
	away := all.awayOf(id, c, all.shard.Outages.At(to), to).Of(reap.ReadIdle)
	d := to.Sub(from) - away.All.Within(from, to)
	if len(away.Holds) > 0 {
		d -= max(to.Sub(max(away.Holds[0], from)), 0)
	}
	return d
}
