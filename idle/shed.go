package idle

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/panjf2000/gnet/v2"
)

const (
	defaultShedProtect = time.Second
	// shedBatch is how many connections are shed at most for one that comes, as in nginx (ngx_drain_connections).
	shedBatch = 32
	// shedLook bounds how many connections are looked at to find those that are idle longest: about half a millisecond.
	shedLook = 1 << 16
	// shedKept is how many of them are remembered, so that not each batch needs a look.
	shedKept = 1 << 8
)

// shedAt returns the number of connections above which the longest idle are shed. nginx begins when less than a sixteenth is free,
// so that one that comes seldom has to wait for another to go.
func (r *Reaper) shedAt(limit int64) int64 { return limit - max(limit/16, 1) }

// isCrowded reports whether connections are to be shed. It goes on once per tick while nobody comes.
func (r *Reaper) isCrowded() bool {
	limit := r.limit.Load()
	return limit > 0 && r.total.Load() > r.shedAt(limit)
}

// MaxConnections returns how many connections may be open, 0 if any number.
func (r *Reaper) MaxConnections() int { return int(r.limit.Load()) }

// SetMaxConnections changes Config.MaxConnections, for whoever knows for how many there is room; 0 is any number. From then on Update does
// not change it. Safe for concurrent use.
func (r *Reaper) SetMaxConnections(n int) {
	r.limitIsSet.Store(true)
	r.limit.Store(int64(max(n, 0)))
}

// Connections returns how many connections are open now. Safe for concurrent use.
func (r *Reaper) Connections() int { return int(r.total.Load()) }

// admit counts a connection that comes to a loop, and reports whether there is room for it. When there is little left, it asks
// for a task that sheds others.
func (r *Reaper) admit(l *loop) bool {
	n, limit := r.total.Add(1), r.limit.Load()
	if r.settings.Load().now.drain != (drain{}) {
		return false
	}
	if limit == 0 || n <= r.shedAt(limit) {
		return true
	}
	if !l.posted.Swap(true) {
		if err := l.el.Execute(context.Background(), gnet.RunnableFunc(l.run)); err != nil {
			l.posted.Store(false)
		}
	}
	return n <= limit
}

// refuse takes back what admit has counted, and says the last words to a connection for which there is no room. gnet closes it as soon
// as OnOpen has returned, if not before, and tells OnClose.
func (l *loop) refuse(c gnet.Conn) {
	l.reaper.total.Add(-1)
	l.refused = address(c)
	l.counters.Refused++
	l.publish(l.clock.now.Load())
	if refusal := l.set.cfg.Refusal; refusal != nil {
		if b := refusal(c); len(b) > 0 {
			_, _ = c.Write(b) // not as what OnOpen returns: gnet keeps a connection to which that cannot be written
		}
	}
}

// shed closes the connections of the loop that are idle longest, if too many are open: first of those that have not shaken
// hands, as far as MarkReady is asked for. It closes none that was active a moment ago, in either direction as far as the kernel tells, is
// held or is exempt.
func (l *loop) shed() {
	if !l.reaper.isCrowded() {
		return
	}
	protected := l.clock.elapsed() - cmp.Or(l.set.cfg.ShedProtect, defaultShedProtect)
	now := l.clock.now.Load()
	mayLook := l.soughtInVain != now // once per tick is enough where nobody can go
	shed := 0
	for n := min(max(l.open/8, 1), shedBatch); shed < n && l.stop == nil; {
		if len(l.victims) == 0 {
			if mayLook {
				l.findVictims(protected)
			}
			if mayLook = false; len(l.victims) == 0 {
				break
			}
		}
		v := l.victims[0]
		l.victims = l.victims[1:]
		if l.shedOne(v, protected) {
			shed++
		}
	}
	if shed == 0 {
		l.soughtInVain = now
	}
}

// A victim is a connection that may be shed.
type victim struct {
	id    uint32
	heard uint32 // stamp
	ready bool
}

// findVictims looks through the rows of the table, or a part of them, for those that are idle longest.
func (l *loop) findVictims(protected time.Duration) {
	now := l.clock.now.Load()
	byIdle := &victims{now: uint32(now), patient: l.set.limits.handshake == 0}
	l.hand = l.table.look(l.hand, shedLook, func(id uint32, r row) {
		if stamp := unwrap(r.heard, now); stamp < now && l.clock.before(stamp) <= protected {
			byIdle.offer(victim{id, r.heard, r.mark&ready != 0})
		}
	})
	slices.SortFunc(byIdle.all, func(a, b victim) int { return byIdle.compare(a, b) })
	l.victims = byIdle.all
}

// victims is a heap of those that are to go first, the last of them at its top.
type victims struct {
	all     []victim
	now     uint32 // stamp
	patient bool   // no handshake is asked for
}

// compare orders by who goes first.
func (v *victims) compare(a, b victim) int {
	if !v.patient && a.ready != b.ready {
		if b.ready {
			return -1
		}
		return 1
	}
	return cmp.Compare(v.now-b.heard, v.now-a.heard)
}

func (v *victims) Len() int           { return len(v.all) }
func (v *victims) Less(i, j int) bool { return v.compare(v.all[i], v.all[j]) > 0 }
func (v *victims) Swap(i, j int)      { v.all[i], v.all[j] = v.all[j], v.all[i] }
func (v *victims) Push(x any)         { v.all = append(v.all, x.(victim)) }
func (v *victims) Pop() any           { panic("BUG: idle: victims only come") }

// offer keeps a victim if it goes before one that is kept.
func (v *victims) offer(x victim) {
	switch {
	case len(v.all) < shedKept:
		heap.Push(v, x)
	case v.compare(x, v.all[0]) < 0:
		v.all[0] = x
		heap.Fix(v, 0)
	}
}

// shedOne closes a victim, unless it has come to life or is gone.
func (l *loop) shedOne(v victim, protected time.Duration) bool {
	s := l.states.at(v.id)
	if !s.used() || s.holds > 0 || s.flags.has(exempt|observed) {
		return false
	}
	c := l.conn(s)
	r, _ := l.table.find(c)
	if r.heard != v.heard {
		return false
	}
	f := l.life(r, v.id, s)
	ev, now := askKernel(c.Fd()), l.clock.elapsed()
	switch {
	case ev.found != nothing || l.limitsOf(s).hear(&f, &ev, now) || f.heard.to > protected:
		return false // what has come was not read yet
	case ev.counted && !ev.again && now-ev.quiet > protected:
		return false // something was sent to it
	}
	l.end(s, &ReapError{Kind: Shed, Lasted: now - f.heard.to})
	return !s.is(c)
}
