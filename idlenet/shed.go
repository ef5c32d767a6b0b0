package idlenet

import (
	"net"
	"time"

	"github.com/idlewheel/idlewheel/reap"
)

// shedSample is the number of connections among which one is chosen to make room.
const shedSample = 64

// admit reports whether a new connection may stay. If so, it is counted for its source until it is
// dropped, and otherwise as refused. If there is no room, the function awaitRoom may wait for some;
// nil does not wait.
func (r *Reaper) admit(c net.Conn, awaitRoom func() bool) (ok bool) {
	defer func() {
		if !ok {
			r.refused.Add(1)
		}
	}()
	from := r.sourceOf(c)
	if r.sources.Admit(from) != nil && (!r.searchAll() || r.sources.Admit(from) != nil) {
		return false // before the rate of all, which one source must not use up
	}
	if !r.rate.Allow() || !r.makeRoom() && (awaitRoom == nil || !awaitRoom()) {
		r.sources.Release(from)
		return false
	}
	return true
}

// makeRoom ends a connection that has been silent for long, if there is no room for one more. It
// reports whether there is room then.
func (r *Reaper) makeRoom() bool {
	set := r.watch.Settings()
	if set.Draining() {
		return false
	}
	limit := int64(set.MaxConnections)
	isFull := func() bool { return limit > 0 && r.watch.Open.Load()-r.watch.Decided.Load() >= limit }
	if !isFull() || r.searchAll() && !isFull() {
		return true
	}
	first := int(r.turn.Add(1) % uint64(len(r.shards)))
	for n := range r.shards {
		s := r.shards[(first+n)%len(r.shards)]
		if s.shedOne(set.ShedProtect) {
			r.watch.Wake()
			return true
		}
	}
	if set.ObserveOnly {
		s := r.shards[first]
		s.locked(func() { s.Counters.Observed[reap.Shed]++ })
	}
	return set.ObserveOnly
}

// searchedAtMost bounds the number of connections that searchAll checks: 6 ms.
const searchedAtMost = 1 << 16

// searchAll drops the connections that are closed, before one is refused for want of room. It does
// so once in a tick at most, and reports whether it did.
func (r *Reaper) searchAll() bool {
	last, now := r.searched.Load(), int64(r.watch.Clock.Elapsed())
	if now < last+int64(r.watch.Clock.Tick()) || !r.searched.CompareAndSwap(last, now) {
		return false
	}
	for _, s := range r.shards {
		for left := min(int(s.size()), searchedAtMost/len(r.shards)); left > 0; left -= perLock {
			s.searchSome(min(left, perLock))
		}
	}
	return true
}

// shedOne ends the connection of a sample that has been silent longest. It reports false if there
// is none that may end.
func (s *shard) shedOne(protect time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, n, lasted := s.mostSilent(protect)
	if n == nil {
		return false
	}
	reason := s.Watcher.NewError(reap.Shed)
	reason.Lasted = lasted
	s.End(id, n, reason)
	return true
}

// mostSilent returns the connection of the next sample in which nothing was sent for longest, at
// least for a time, and how long its peer sent nothing. It returns nil if there is none.
func (s *shard) mostSilent(longest time.Duration) (victim uint32, found *conn, lasted time.Duration) {
	s.exact = true
	defer func() { s.exact = false }()
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
	return victim, found, lasted
}
