package idlenet

import (
	"net"
	"time"

	"github.com/idlewheel/idlewheel/reap"
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
	set := l.watch.Settings()
	if set.Draining() {
		return false
	}
	limit := int64(set.MaxConnections)
	isFull := func() bool { return limit > 0 && l.watch.Open.Load()-l.watch.Decided.Load() >= limit }
	if !isFull() || l.searchAll() && !isFull() {
		return true
	}
	first := int(l.turn.Add(1) % uint64(len(l.shards)))
	for n := range l.shards {
		s := l.shards[(first+n)%len(l.shards)]
		if s.shedOne(set.ShedProtect) {
			l.poke()
			return true
		}
	}
	if set.ObserveOnly {
		l.shards[first].observeRefusal()
	}
	return set.ObserveOnly
}

// observeRefusal counts a connection that would be refused without ObserveOnly.
func (s *shard) observeRefusal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Counters.Observed[reap.Shed]++
}

// searchedAtMost bounds the number of connections that searchAll checks: 6 ms.
const searchedAtMost = 1 << 16

// searchAll drops the connections that are closed, before one is refused for want of room. It does
// so once in a tick at most, and reports whether it did.
func (l *Listener) searchAll() bool {
	last, now := l.searched.Load(), int64(l.watch.Clock.Elapsed())
	if now < last+int64(l.watch.Clock.Tick()) || !l.searched.CompareAndSwap(last, now) {
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
	longest, lasted, victim := protect, time.Duration(0), uint32(0)
	var found *conn
	n := s.Len()
	for k := range min(n, shedSample) {
		id := (s.probed + k + 1) % n
		c := s.At(id)
		if !c.Used() || c.Held() || !s.IsJudged(id, c) {
			continue
		}
		if peer, both, _ := s.Silence(id, c); both >= longest {
			longest, lasted, victim, found = both, peer, id, c
		}
	}
	if n > 0 {
		s.probed = (s.probed + shedSample) % n
	}
	if found == nil {
		return false
	}
	reason := s.Watcher.NewError(reap.Shed)
	reason.Lasted = lasted
	s.End(victim, found, reason)
	return true
}
