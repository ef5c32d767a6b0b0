package idlenet

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/reap"
)

const (
	// shedSample is the number of connections among which one is chosen to make room.
	shedSample = 64
	// passedForRoom is the number of ids that are passed for one new connection at most, in all
	// samples and shards together: 0.2 ms. Many may be free, if MaxConnections was reduced.
	passedForRoom = 1 << 15
)

// admit reports whether a new connection may stay. If so, it is counted for its source until it is
// dropped, and otherwise as refused. If there is no room, the function awaitRoom may wait for some;
// nil does not wait.
func (r *Reaper) admit(c net.Conn, awaitRoom func() bool) (ok bool) {
	from := r.sourceOf(c)
	why := r.sources.Admit(from)
	if why != nil && r.searchAll() {
		why = r.sources.Admit(from)
	}
	if why != nil {
		r.reject(&r.refused.source, why)
		return false // before the rate of all, which one source must not use up
	}
	switch {
	case !r.rate.Allow():
		r.reject(&r.refused.rate, "more connections than the accept rate")
	case !r.makeRoom() && (awaitRoom == nil || !awaitRoom()):
		r.reject(&r.refused.room, "all connections that MaxConnections allows are in use")
	default:
		return true
	}
	r.sources.Release(from)
	return false
}

// reject counts a connection, and logs the reason once a second.
func (r *Reaper) reject(count *atomic.Uint64, why any) {
	count.Add(1)
	if set := r.watch.Settings(); !set.Draining() {
		r.watch.Warn(&r.warnings.rejected, "connections were rejected", "last", why)
	}
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
	// A sample may have busy connections only, or another goroutine ends its victim.
	tries := max(len(r.shards), 2)
	for range tries {
		if r.shedOne(passedForRoom/tries, set.ShedProtect) {
			r.watch.Wake()
			return true
		}
	}
	if set.ObserveOnly {
		s := r.shards[r.turn.Load()%uint64(len(r.shards))]
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

// shedOne ends the connection of a sample of all shards in which nothing was sent for longest, at
// least for a time. It reports false if there is none that may end.
func (r *Reaper) shedOne(passes int, protect time.Duration) bool {
	var victim silent
	number := min(len(r.shards), shedSample)
	first := r.turn.Add(uint64(number))
	for n := range number {
		s := r.shards[(first+uint64(n))%uint64(len(r.shards))]
		if found := s.mostSilent(uint32(shedSample/number), uint32(passes/number), protect); found.lasted > victim.lasted {
			victim = found
		}
	}
	return victim.shard != nil && victim.shed(protect)
}

// A silent is a connection in which nothing was sent for a time.
type silent struct {
	shard      *shard
	id, opened uint32
	lasted     time.Duration
}

// mostSilent returns the connection of the next sample in which nothing was sent for longest, at
// least for a time. It returns nothing if there is none.
func (s *shard) mostSilent(sample, passes uint32, least time.Duration) (found silent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for passed := uint32(0); sample > 0 && passed < min(s.Len(), passes); passed++ {
		s.probed = (s.probed + 1) % s.Len()
		if !s.At(s.probed).Used() || s.Ends.Of(s.probed) != nil {
			continue
		}
		sample--
		if _, lasted := s.silenceOf(s.probed); lasted >= max(least, found.lasted) {
			found = silent{s, s.probed, uint32(s.At(s.probed).Opened()), lasted}
		}
	}
	return found
}

// silenceOf returns how long the peer of a connection sent nothing, and how long nothing was sent
// in either direction. Both are 0 if the connection may not end.
func (s *shard) silenceOf(id uint32) (peer, both time.Duration) {
	c := s.At(id)
	if !c.Used() || c.Held() || !s.IsJudged(id, c) {
		return 0, 0
	}
	s.exact = true
	defer func() { s.exact = false }()
	peer, both, _ = s.Silence(id, c)
	return peer, both
}

// shed ends the connection. It reports false if the connection may not end any more.
func (v silent) shed(protect time.Duration) bool {
	s := v.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	peer, both := s.silenceOf(v.id)
	c := s.At(v.id)
	if both < protect || uint32(c.Opened()) != v.opened {
		return false
	}
	reason := s.Watcher.NewError(reap.Shed)
	reason.Lasted = peer
	s.End(v.id, c, reason)
	return true
}
