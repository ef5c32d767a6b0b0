package idlenet

import (
	"net"
	"reflect"
	"sync"
	"time"

	"github.com/idlewheel/idlewheel/internal/connstate"
	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/slab"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/sourcelimit"
	"github.com/idlewheel/idlewheel/wheel"
)

// A shard has a part of the connections, so that goroutines that accept, hold and release rarely
// wait for each other, or for a look at a connection, which takes 1 or 2 µs.
type shard struct {
	listener *Listener
	number   uint32

	mu       sync.Mutex // guards the fields below
	conns    slab.Slab[conn]
	ids      idTable
	wheel    *wheel.Wheel[uint32]
	ends     map[uint32]*end // of connections that have ended, by id
	counters counters
	evidence verdict.Evidence // of the connection that is being looked at
	calls    []func()         // to make after unlocking
	hand     uint32           // the id at which the search for closed connections goes on
	probed   uint32           // the id that was probed last
}

// A conn is what a Listener knows of one connection.
type conn struct {
	connstate.State
	active  bool // ConnState has seen a request that is not over
	dialled bool // it came by Watch
	record  conntable.Record
	conn    net.Conn // as Accept has returned it; nil if the conn is free
	timer   wheel.Handle
}

func (c *conn) used() bool { return c.conn != nil }

// An end is what is known of a connection that has ended.
type end struct {
	reason  *ReapError
	told    mono.Time // the server was told to close the connection
	closeAt mono.Time // the Listener closes it then, or later after an outage; Never before told
	closed  bool      // it was found closed
}

func newShard(l *Listener, number uint32) *shard {
	w, err := wheel.New[uint32](l.clock.Tick())
	if err != nil {
		panic("BUG: idlenet: " + err.Error()) // the Config was checked
	}
	return &shard{listener: l, number: number, wheel: w, ids: newIDTable(), ends: make(map[uint32]*end)}
}

// address returns the address of a socket, which is its name while it is kept.
func address(own socket) uintptr { return reflect.ValueOf(own).Pointer() }

// shard returns the shard of a socket.
func (l *Listener) shard(own socket) *shard {
	const fibonacci = 0x9E3779B97F4A7C15 // spreads addresses, which are multiples of their size
	return l.shards[uint64(address(own))*fibonacci>>32%uint64(len(l.shards))]
}

// searchPerAdd is the number of connections of which add finds out whether they are closed: two,
// so that about as many closed connections are kept as there are open ones, at most.
const searchPerAdd = 2

// add watches a connection.
func (s *shard) add(c net.Conn, own socket, dialled bool) {
	l := s.listener
	s.mu.Lock()
	defer s.mu.Unlock()
	set := l.settings.Load()
	now := l.clock.Elapsed()
	id, n := s.conns.Take(uint32(l.clock.Pack(now)))
	n.conn, n.dialled = c, dialled
	n.Open(&l.clock, set.limits.Rate, now)
	n.record = conntable.Record{Heard: l.clock.Stamp().Short(), Tag: conntable.Fresh}
	s.ids.add(address(own), id)
	f := n.facts(l, &set.limits, id, now)
	next := now
	if v := set.limits.Judge(&f, &verdict.Away{}, now); v.Act == verdict.Wait {
		next = v.Next
	}
	n.timer = s.wheel.Schedule(time.Duration(next), id)
	s.counters.Opened++
	for range searchPerAdd {
		s.searchClosed()
	}
}

// facts returns the facts about a connection. With Config.Stamp it takes note of the last Read,
// unless a Touch was later.
func (n *conn) facts(l *Listener, lim *verdict.Limits, id uint32, now mono.Time) verdict.Facts {
	if heard, ok := lastRead(n.conn); ok {
		last := l.clock.Stamp()
		if heard.Unwrap(last) > n.record.Heard.Unwrap(last) {
			n.record.Heard = heard
		}
		n.record.Set(conntable.Fresh, false)
	}
	f := n.Facts(&l.clock, &n.record, lim, 0, now)
	f.Random = n.Random(id)
	return f
}

// searchClosed drops the next connection if it is closed.
func (s *shard) searchClosed() {
	if s.conns.Len() == 0 {
		return
	}
	id := s.hand % s.conns.Len()
	s.hand = id + 1
	if n := s.conns.At(id); n.used() && s.ends[id] == nil {
		if own, ok := root(n.conn); ok && isClosed(own) {
			s.drop(id, n)
		}
	}
}

// drop forgets a connection that is closed.
func (s *shard) drop(id uint32, n *conn) {
	if own, ok := root(n.conn); ok {
		s.ids.remove(address(own), id)
	}
	s.noteClosed(id, n)
	delete(s.ends, id)
	s.wheel.Cancel(n.timer)
	s.conns.Put(id, uint32(n.Opened()))
}

// noteClosed counts a connection that was found closed.
func (s *shard) noteClosed(id uint32, n *conn) {
	e := s.ends[id]
	if e != nil && e.closed {
		return
	}
	s.counters.Closed++
	s.listener.total.Add(-1)
	if !n.dialled {
		s.listener.sources.Release(sourcelimit.AddrOf(n.conn.RemoteAddr()))
	}
	if e == nil {
		s.counters.ClosedByHandler++
		return
	}
	e.closed = true
	s.listener.ending.Add(-1)
}

// A place names a connection of a shard.
type place struct {
	shard *shard
	id    uint32
	own   socket
}

// find returns the place of a connection. It reports false if the Listener does not watch it.
func (l *Listener) find(c net.Conn) (place, bool) {
	own, ok := root(c)
	if !ok {
		return place{}, false
	}
	s := l.shard(own)
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := s.ids.find(address(own), s)
	return place{s, id, own}, ok
}

// with calls a function with the state of a connection. It does nothing if the Listener does not
// watch the connection.
func (l *Listener) with(c net.Conn, do func(s *shard, id uint32, n *conn)) {
	own, ok := root(c)
	if !ok {
		return
	}
	s := l.shard(own)
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := s.ids.find(address(own), s); ok {
		do(s, id, s.conns.At(id))
	}
}

// soon makes the next tick look at a connection.
func (s *shard) soon(n *conn) {
	s.wheel.Reschedule(n.timer, time.Duration(s.listener.clock.Elapsed()))
}
