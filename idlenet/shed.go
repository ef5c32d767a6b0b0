package idlenet

import (
	"cmp"
	"math/rand/v2"
	"net"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

// shedSample is the number of connections among which one is chosen to make room.
const shedSample = 64

// admit reports whether a new connection may stay. If so, it is counted for its source until it is
// dropped.
func (l *Listener) admit(c net.Conn) bool {
	from := sourcelimit.AddrOf(c.RemoteAddr())
	if l.sources.Admit(from) != nil && (!l.searchAll() || l.sources.Admit(from) != nil) {
		return false // before the rate of all, which one source must not use up
	}
	if !l.rate.Allow() || !l.hasRoom() {
		l.sources.Release(from)
		return false
	}
	return true
}

// hasRoom reports whether there is room for one more connection. If there is none, a connection
// that has been silent for long ends.
func (l *Listener) hasRoom() bool {
	set := l.settings.Load()
	if set.drain != (verdict.Drain{}) {
		return false
	}
	limit := set.cfg.MaxConnections
	isFull := func() bool { return limit > 0 && l.total.Load()-l.ending.Load() >= int64(limit) }
	if !isFull() || l.searchAll() && !isFull() {
		return true
	}
	first := rand.IntN(len(l.shards))
	for n := range l.shards {
		s := l.shards[(first+n)%len(l.shards)]
		if s.shedOne(cmp.Or(set.cfg.ShedProtect, defaultShedProtect)) {
			l.poke()
			return true
		}
	}
	return false
}

// searchedAtMost bounds the number of connections that searchAll checks: 6 ms.
const searchedAtMost = 1 << 16

// searchAll drops the connections that are closed, before one is refused for want of room. It does
// so once in a tick at most, and reports whether it did.
func (l *Listener) searchAll() bool {
	last, now := l.searched.Load(), int64(l.clock.Elapsed())
	if now < last+int64(l.clock.Tick()) || !l.searched.CompareAndSwap(last, now) {
		return false
	}
	for _, s := range l.shards {
		for left := min(int(s.size()), searchedAtMost/len(l.shards)); left > 0; left -= searchedPerLock {
			s.searchSome(min(left, searchedPerLock))
		}
	}
	return true
}

// shedOne ends the connection of a sample that has been silent longest. It reports false if there
// is none that may end.
func (s *shard) shedOne(protect time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ev := s.listener, new(verdict.Evidence)
	longest, victim := protect, uint32(0)
	var found *conn
	n := s.conns.Len()
	for k := range min(n, shedSample) {
		id := (s.probed + k + 1) % n
		c := s.conns.At(id)
		asked := l.clock.Elapsed() // the answer may be old when it is known
		if !c.used() || s.ends[id] != nil || c.Held() || !c.Judged() || !l.ask(c.conn, protect, ev) {
			continue
		}
		if silent := s.silent(c, ev, asked); silent >= longest {
			longest, victim, found = silent, id, c
		}
	}
	if n > 0 {
		s.probed = (s.probed + shedSample) % n
	}
	if found == nil {
		return false
	}
	s.end(victim, found, &ReapError{Reason: Shed, Lasted: longest})
	return true
}

// silent returns how long nothing was sent in either direction before an instant.
func (s *shard) silent(c *conn, ev *verdict.Evidence, now mono.Time) time.Duration {
	l := s.listener
	f := c.facts(l, &l.settings.Load().limits, 0, now)
	silent := min(now.Sub(f.Heard.To), now.Sub(f.Wrote.To))
	switch {
	case ev.Found == verdict.Unread:
		return 0
	case ev.Dated && ev.Received > 0:
		silent = min(silent, ev.Silent-ev.Step)
	}
	if ev.Dated {
		silent = min(silent, ev.Quiet-ev.Step, now.Sub(f.Opened.To))
	}
	return silent
}
