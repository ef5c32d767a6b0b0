package idle

import (
	"cmp"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/topn"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

const (
	defaultShedProtect = time.Second
	// shedBatch is the most connections that one task sheds. nginx has the same number in
	// ngx_drain_connections.
	shedBatch = 32
	// shedScan is the number of records that one scan reads, in about 0.1 ms.
	shedScan = 1 << 14
	// maxCandidates is the number of connections that a scan finds, so that not every batch needs
	// one.
	maxCandidates = 1 << 8
)

// shedThreshold returns the number of connections above which the longest idle connections are
// shed. Like nginx, it keeps a sixteenth free, so that new connections seldom wait for a close.
func (r *Reaper) shedThreshold(limit int64) int64 { return max(limit-max(limit/16, 1), 1) }

// limit returns Config.MaxConnections. If it is 0, there is no limit.
func (r *Reaper) limit() int64 { return int64(r.settings.Load().cfg.MaxConnections) }

// shouldShed reports whether connections are to be shed. Each tick checks it, even without new
// connections.
func (r *Reaper) shouldShed() bool {
	limit := r.limit()
	return limit > 0 && r.total.Load()-r.decided.Load() > r.shedThreshold(limit)
}

// Connections returns the number of open connections. Safe for concurrent use.
func (r *Reaper) Connections() int { return int(r.total.Load()) }

// admit counts a new connection of a loop, and reports whether there is room for it. If there is
// little room left, it posts a task that sheds others. With ObserveOnly there is always room.
func (r *Reaper) admit(l *loop) bool {
	n, set := r.total.Add(1), r.settings.Load()
	limit := int64(set.cfg.MaxConnections)
	if set.overlay.drain != (verdict.Drain{}) {
		return false
	}
	if limit == 0 || n <= r.shedThreshold(limit) {
		return true
	}
	_ = r.post(l) // if it fails, the driver posts the task
	if n > limit && set.cfg.ObserveOnly {
		l.counters.Observed[Shed]++
		return true
	}
	return n <= limit
}

// refuse takes back the count of admit, and writes the refusal to a connection for which there is
// no room. gnet closes the connection when OnOpen returns, or earlier, and calls OnClose.
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
			// OnOpen does not return these bytes: gnet keeps a connection to which it cannot write
			// them.
			_, _ = c.Write(b)
		}
	}
}

// wasRefused reports whether a connection was refused, and forgets the refusal.
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

// retireIfEmpty retires the loop if it has lost its last connection.
func (l *loop) retireIfEmpty() {
	if l.open == 0 && len(l.refused) == 0 {
		l.reaper.retire(l)
	}
}

// shed closes the longest idle connections of the loop if too many are open. If there is a
// HandshakeTimeout, connections in the handshake are closed first. Held and exempt connections
// stay. So do connections that were active within ShedProtect, in either direction if the kernel
// reports it.
func (l *loop) shed(spent func() bool) {
	if !l.reaper.shouldShed() {
		return
	}
	cutoff := l.clock.Elapsed().Add(-cmp.Or(l.set.cfg.ShedProtect, defaultShedProtect))
	now := l.clock.Stamp()
	mayScan := l.noCandidateAt != now // after a scan without result, the next one is in the next tick
	shed := 0
	for n := min(max(l.open/8, 1), shedBatch); shed < n && !spent() && l.reaper.claimShed(); {
		v, ok := l.nextCandidate(&mayScan, cutoff)
		if ok && l.shedOne(v, cutoff) {
			shed++
		}
		l.reaper.shedding.Add(-1)
		if !ok {
			break
		}
	}
	if shed == 0 {
		l.noCandidateAt = now
	}
}

// claimShed reports whether one more connection is to be shed. It takes into account the
// connections that other loops are about to shed. The caller decrements shedding afterwards.
func (r *Reaper) claimShed() bool {
	if r.mustShed(r.shedding.Add(1)) {
		return true
	}
	r.shedding.Add(-1)
	return false
}

// mustShed reports whether the claimed connections are to be shed.
func (r *Reaper) mustShed(claimed int64) bool {
	limit := r.limit()
	return limit > 0 && r.total.Load()-r.decided.Load()-claimed >= r.shedThreshold(limit)
}

// nextCandidate returns the next connection to shed. It may scan the table once for new candidates.
func (l *loop) nextCandidate(mayScan *bool, cutoff mono.Time) (v candidate, ok bool) {
	if len(l.candidates) == 0 && *mayScan {
		*mayScan = false
		l.findCandidates(cutoff)
	}
	if len(l.candidates) == 0 {
		return v, false
	}
	v = l.candidates[0]
	l.candidates = l.candidates[1:]
	return v, true
}

// A candidate is a connection that may be shed.
type candidate struct {
	id    uint32
	heard mono.ShortStamp
	ready bool
}

// findCandidates scans the table, or a part of it, for the connections that have been idle longest.
func (l *loop) findCandidates(cutoff mono.Time) {
	now, noHandshake := l.clock.Stamp(), l.set.limits.Handshake == 0
	first := topn.New(maxCandidates, func(a, b candidate) int {
		if !noHandshake && a.ready != b.ready {
			if b.ready {
				return -1
			}
			return 1
		}
		return cmp.Compare(now.Short()-b.heard, now.Short()-a.heard)
	})
	l.scanAt = l.table.Scan(l.scanAt, shedScan, func(id uint32, r conntable.Record) {
		if stamp := r.Heard.Unwrap(now); stamp < now && l.clock.Before(stamp, never) <= cutoff {
			first.Add(candidate{id, r.Heard, r.Has(conntable.Ready)})
		}
	})
	l.candidates = first.Sorted()
}

// shedOne closes a candidate, and reports whether it did. A candidate may have become active, or be
// closed already.
func (l *loop) shedOne(v candidate, cutoff mono.Time) bool {
	s := l.states.At(v.id)
	if !s.used() || s.Held() || !s.Judged() || l.pendingCloses[s] != nil {
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
	case ev.Found != verdict.Nothing || l.limitsOf(s).Hear(&f, ev, now) || f.Heard.To > cutoff:
		return false // bytes of the peer have arrived
	case ev.Dated && !ev.Resent && now.Add(-ev.Quiet+ev.Step) > cutoff:
		return false // bytes were sent to the peer
	case !l.reaper.mustShed(l.reaper.shedding.Load()):
		return false // other loops have made room
	}
	l.end(s, &ReapError{Reason: Shed, Lasted: now.Sub(f.Heard.To)})
	return !s.is(c) || s.Observed() || l.pendingCloses[s] != nil
}
