package idle

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/coarse"
	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

const (
	defaultShedProtect = time.Second
	// shedBatch is how many connections are shed at most for one that comes, as in nginx (ngx_drain_connections).
	shedBatch = 32
	// shedScan bounds how many connections are looked at in one piece to find the longest idle ones:
	// about a tenth of a millisecond.
	shedScan = 1 << 14
	// shedKept is how many of them are remembered, so that not each batch needs a look.
	shedKept = 1 << 8
)

// shedAt returns the number of connections above which the longest idle are shed. nginx begins when less than a sixteenth is free,
// so that one that comes seldom has to wait for another to go.
func (r *Reaper) shedAt(limit int64) int64 { return max(limit-max(limit/16, 1), 1) }

// limit returns Config.MaxConnections, 0 for any number.
func (r *Reaper) limit() int64 { return int64(r.settings.Load().cfg.MaxConnections) }

// shouldShed reports whether connections are to be shed. It goes on once per tick while nobody comes.
func (r *Reaper) shouldShed() bool {
	limit := r.limit()
	return limit > 0 && r.total.Load()-r.spared.Load() > r.shedAt(limit)
}

// Connections returns how many connections are open now. Safe for concurrent use.
func (r *Reaper) Connections() int { return int(r.total.Load()) }

// admit counts a new connection of a loop, and reports whether there is room for it. When there is
// little room left, it posts a task that sheds others. With ObserveOnly there is always room.
func (r *Reaper) admit(l *loop) bool {
	n, limit, set := r.total.Add(1), r.limit(), r.settings.Load()
	if set.overlay.drain != (verdict.Drain{}) {
		return false
	}
	if limit == 0 || n <= r.shedAt(limit) {
		return true
	}
	_ = r.post(l) // the driver posts it otherwise
	if n > limit && set.cfg.ObserveOnly {
		l.counters.observed[Shed]++
		return true
	}
	return n <= limit
}

// refuse takes back what admit has counted, and says the last words to a connection for which there is no room. gnet closes it as soon
// as OnOpen has returned, if not before, and tells OnClose.
func (l *loop) refuse(c gnet.Conn) {
	l.reaper.total.Add(-1)
	if l.refused == nil {
		l.refused = make(map[uint]int)
	}
	l.refused[descriptor(inner(c))]++
	l.counters.Refused++
	l.publish(l.clock.Stamp())
	if refusal := l.reaper.settings.Load().cfg.Refusal; refusal != nil {
		if b := refusal(c); len(b) > 0 {
			_, _ = c.Write(b) // not as what OnOpen returns: gnet keeps a connection to which that cannot be written
		}
	}
}

// wasRefused reports whether a connection was refused, and forgets it.
func (l *loop) wasRefused(c gnet.Conn) bool {
	fd := descriptor(c)
	n := l.refused[fd]
	if n > 1 {
		l.refused[fd] = n - 1
	} else {
		delete(l.refused, fd)
	}
	return n > 0
}

// retireIfEmpty is called when the loop may have lost its last connection.
func (l *loop) retireIfEmpty() {
	if l.open == 0 && len(l.refused) == 0 {
		l.reaper.retire(l)
	}
}

// shed closes the connections of the loop that are idle longest, if too many are open: first of those that have not shaken
// hands, as far as MarkReady is asked for. It closes none that was active a moment ago, in either direction as far as the kernel tells, is
// held or is exempt.
func (l *loop) shed(spent func() bool) {
	if !l.reaper.shouldShed() {
		return
	}
	protected := l.clock.Elapsed() - cmp.Or(l.set.cfg.ShedProtect, defaultShedProtect)
	now := l.clock.Stamp()
	mayScan := l.foundNoVictim != now // once per tick is enough where nobody can go
	shed := 0
	for n := min(max(l.open/8, 1), shedBatch); shed < n && !spent() && l.reaper.claimShed(); {
		v, ok := l.nextVictim(&mayScan, protected)
		if ok && l.shedOne(v, protected) {
			shed++
		}
		l.reaper.shedding.Add(-1)
		if !ok {
			break
		}
	}
	if shed == 0 {
		l.foundNoVictim = now
	}
}

// claimShed reports whether one more connection is to be shed, with those that other loops are about
// to shed. The caller takes it out of shedding afterwards.
func (r *Reaper) claimShed() bool {
	if r.mustShed(r.shedding.Add(1)) {
		return true
	}
	r.shedding.Add(-1)
	return false
}

// mustShed reports whether there is need to shed the connections that loops have claimed.
func (r *Reaper) mustShed(claimed int64) bool {
	limit := r.limit()
	return limit > 0 && r.total.Load()-r.spared.Load()-claimed >= r.shedAt(limit)
}

// nextVictim returns the next connection to shed. It looks for more if it may, once.
func (l *loop) nextVictim(mayLook *bool, protected time.Duration) (v victim, ok bool) {
	if len(l.victims) == 0 && *mayLook {
		*mayLook = false
		l.findVictims(protected)
	}
	if len(l.victims) == 0 {
		return v, false
	}
	v = l.victims[0]
	l.victims = l.victims[1:]
	return v, true
}

// A victim is a connection that may be shed.
type victim struct {
	id    uint32
	heard uint32 // stamp
	ready bool
}

// findVictims looks through the records of the table, or a part of them, for those that are idle longest.
func (l *loop) findVictims(protected time.Duration) {
	now := l.clock.Stamp()
	byIdle := &victims{now: uint32(now), patient: l.set.limits.Handshake == 0}
	l.scanAt = l.table.Scan(l.scanAt, shedScan, func(id uint32, r conntable.Record) {
		if stamp := coarse.Unwrap(r.Heard, now); stamp < now && l.clock.Before(stamp, never) <= protected {
			byIdle.offer(victim{id, r.Heard, r.Has(conntable.Ready)})
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
	s := l.states.At(v.id)
	if !s.used() || s.holds > 0 || s.flags.has(exempt|observed) || l.closings[s] != nil {
		return false
	}
	c := s.conn
	r, _ := l.table.Find(key(c))
	if r.Heard != v.heard {
		return false
	}
	ev := &l.evidence
	now := l.askKernel(c)
	f := l.facts(r, v.id, s, now)
	switch {
	case ev.Found != verdict.Nothing || l.limitsOf(s).Hear(&f, ev, now) || f.Heard.To > protected:
		return false // what has come was not read yet
	case ev.Dated && !ev.Resent && now-ev.Quiet+ev.Step > protected:
		return false // something was sent to it
	case !l.reaper.mustShed(l.reaper.shedding.Load()):
		return false // other loops have closed connections meanwhile
	}
	l.end(s, &ReapError{Reason: Shed, Lasted: now - f.Heard.To})
	return !s.is(c) || s.flags.has(observed) || l.closings[s] != nil
}
