package idle

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/watch"
	"github.com/idlewheel/idlewheel/reap"
)

const (
	// shedBatch is the most connections that one task sheds. nginx has the same number in
	// ngx_drain_connections.
	shedBatch = 32
	// tableScan is the number of records that one scan reads, in about 0.1 ms.
	tableScan = 1 << 14
	// maxCandidates is the number of connections that a scan finds, so that not every batch needs
	// one.
	maxCandidates = 1 << 8
)

// A shedder chooses the connections of a loop that are closed to make room. The loop goroutine owns
// it.
type shedder struct {
	candidates    []candidate // the next connections to shed
	found         int         // by the last scan
	shed          int         // of them
	last          candidate   // of them
	scannedAt     int         // the piece of the table at which the last scan began
	scanAt        int         // the piece at which the next one begins
	noCandidateAt mono.Stamp  // the stamp at which there was no connection to shed
}

// goesOn reports whether the next scan looks for connections behind the last one that was found. If
// fewer than half were shed, they would hide the others: they receive data, which only the kernel
// tells.
func (d *shedder) goesOn() bool { return d.found == maxCandidates && d.shed < d.found/2 }

// A crowd is the number of connections of all loops against Config.MaxConnections. Safe for
// concurrent use.
type crowd struct {
	watcher  *watch.Watcher
	shedding atomic.Int64 // connections that a loop is about to shed
}

// shedThreshold returns the number of connections above which the longest idle connections are
// shed. Like nginx, it keeps a sixteenth free, so that new connections seldom wait for a close.
func shedThreshold(limit int64) int64 { return max(limit-max(limit/16, 1), 1) }

// mustShed reports whether the claimed connections are to be shed. Each tick checks it for one,
// even without new connections.
func (c *crowd) mustShed(claimed int64) bool {
	limit := int64(c.watcher.Settings().MaxConnections)
	return limit > 0 && c.watcher.Open.Load()-c.watcher.Decided.Load()-claimed >= shedThreshold(limit)
}

// claim reports whether one more connection is to be shed. It takes into account the connections
// that other loops are about to shed. The caller decrements shedding afterwards.
func (c *crowd) claim() bool {
	if c.mustShed(c.shedding.Add(1)) {
		return true
	}
	c.shedding.Add(-1)
	return false
}

// hasRoom counts a new connection of a loop, and reports whether there is room for it. If there is
// little room left, it posts a task that sheds others. With ObserveOnly there is always room.
func (l *loop) hasRoom(post func(*loop) error) bool {
	n, set := l.Watcher.Open.Add(1), l.Watcher.Settings()
	limit := int64(set.MaxConnections)
	switch {
	case set.Draining():
		return false
	case limit == 0 || n <= shedThreshold(limit):
		return true
	}
	_ = post(l) // if it fails, the driver posts the task
	if n > limit && set.ObserveOnly {
		l.Counters.Observed[reap.Shed]++
		return true
	}
	return n <= limit
}

// refuse takes back the count of hasRoom, and writes the refusal to a connection for which there is
// no room. gnet closes the connection when OnOpen returns, or earlier, and calls OnClose.
func (l *loop) refuse(c gnet.Conn) {
	l.Watcher.Open.Add(-1)
	l.refused[descriptor(inner(c))]++
	l.Counters.Refused++
	l.publish(l.clock.Stamp())
	if refusal := l.Watcher.Settings().Front.(*Config).Refusal; refusal != nil {
		if b := refusal(c); len(b) > 0 {
			// OnOpen does not return these bytes: gnet keeps a connection to which it cannot write
			// them.
			_, _ = c.Write(b)
		}
	}
}

// refusals are the connections that are being refused, by descriptor.
type refusals map[uint]int

// remove removes a refused connection. It reports false if the connection was not refused.
func (r refusals) remove(fd uint) (was bool) {
	n := r[fd]
	if n > 1 {
		r[fd] = n - 1
	} else {
		delete(r, fd)
	}
	return n > 0
}

// shed closes the longest idle connections of the loop if too many are open. If there is a
// HandshakeTimeout, connections in the handshake are closed first. Held and exempt connections
// stay. So do connections that were active within ShedProtect, in either direction if the kernel
// reports it.
func (l *loop) shed(spent func() bool) {
	crowd := l.crowd
	if !crowd.mustShed(1) {
		return
	}
	protect := l.Set.ShedProtect
	now := l.clock.Stamp()
	// After a scan without result, the next one is in the next tick.
	mayScan := l.shedder.noCandidateAt != now
	shed := 0
	for n := min(max(l.Open/8, 1), shedBatch); shed < n && !spent() && crowd.claim(); {
		if len(l.shedder.candidates) == 0 && mayScan {
			mayScan = false
			l.findCandidates(l.clock.Elapsed().Add(-protect))
		}
		next := l.shedder.candidates
		if len(next) > 0 {
			l.shedder.candidates = next[1:]
			if l.shedOne(next[0], protect) {
				shed++
				l.shedder.shed++
			}
		}
		crowd.shedding.Add(-1)
		if len(next) == 0 {
			break
		}
	}
	if shed == 0 {
		l.shedder.noCandidateAt = now
	}
}

// A candidate is a connection that may be shed.
type candidate struct {
	id      uint32
	heard   mono.ShortStamp
	touched mono.Packed
	active  mono.Stamp // the later of heard and touched
	ready   bool
}

// findCandidates scans the table, or a part of it, for the connections that have been idle longest.
func (l *loop) findCandidates(cutoff mono.Time) {
	d, now, noHandshake := &l.shedder, l.clock.Stamp(), l.Set.Common.Handshake == 0
	order := func(a, b candidate) int {
		if !noHandshake && a.ready != b.ready {
			if b.ready {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.active, b.active), cmp.Compare(a.id, b.id))
	}
	goesOn, last := d.goesOn(), d.last
	if goesOn {
		d.scanAt = d.scannedAt
	}
	isIdle := func(stamp mono.Stamp) bool { return l.clock.Before(stamp, never) <= cutoff }
	first := watch.NewFirst(maxCandidates, order)
	d.scannedAt = d.scanAt
	d.scanAt = l.table.Scan(d.scanAt, tableScan, func(id uint32, r conntable.Record) {
		v := candidate{id: id, heard: r.Heard, active: r.Heard.Unwrap(now), ready: r.Has(conntable.Ready)}
		if !isIdle(v.active) || !first.Admits(v) {
			return
		}
		s := l.At(id)
		if v.touched = s.Touched(); v.touched != 0 {
			v.active = max(v.active, l.clock.StampAt(l.clock.Unpack(v.touched, l.clock.Read())))
		}
		if l.mayShed(id, s) && isIdle(v.active) && !(goesOn && order(v, last) <= 0) {
			first.Add(v)
		}
	})
	d.candidates = first.Sorted()
	if d.found, d.shed = len(d.candidates), 0; d.found > 0 {
		d.last = d.candidates[d.found-1]
	}
}

// mayShed reports whether a connection is open, not held and not exempt.
func (l *loop) mayShed(id uint32, s *conn) bool { return s.Used() && !s.Held() && l.IsJudged(id, s) }

// shedOne closes a candidate, and reports whether it did. A candidate may have become active, or be
// closed already.
func (l *loop) shedOne(v candidate, protect time.Duration) bool {
	s := l.At(v.id)
	if !l.mayShed(v.id, s) {
		return false
	}
	if r, _ := l.table.Find(key(s.Front)); r.Heard != v.heard || s.Touched() != v.touched {
		return false
	}
	peer, both, news := l.Silence(v.id, s)
	// Other loops may have made room.
	if news || both < protect || !l.crowd.mustShed(l.crowd.shedding.Load()) {
		return false
	}
	reason := l.Watcher.NewError(reap.Shed)
	reason.Lasted = peer
	l.End(v.id, s, reason)
	return !l.mayShed(v.id, s) // a foreign connection stays if its Close fails
}
