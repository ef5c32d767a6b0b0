package idlenet

import (
	"net"
	"net/netip"
	"reflect"
	"sync"
	"time"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/watch"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

// A shard has a part of the connections, so that goroutines that accept, hold and release rarely
// wait for each other, or for a look at a connection, which takes 1 or 2 µs.
type shard struct {
	reaper  *Reaper
	telling sync.Mutex // held while a server is told; locked before mu

	mu sync.Mutex // guards the fields below
	watch.Shard[front]
	ids     conntable.AddressTable
	reasons reasons
	http2   map[uint32]*http2Conn
	calls   []func() // to make after unlocking
	hand    uint32   // the id at which the search for closed connections goes on
	probed  uint32   // the id that was probed last
	exact   bool     // unread bytes count, however fresh
	opens   uint32   // connections so far

	// sources are the addresses of sockets by their ids, of those that may tell another one later:
	// that of a PROXY header.
	sources map[uint32]netip.Addr
}

// A front is what a Reaper keeps of a connection.
type front struct {
	record conntable.Record
	kept   net.Conn // the socket, or a *layered
}

// A layered is a connection of a server with its socket inside, which it may deny after its Close.
type layered struct {
	net.Conn
	own socket
}

// keep returns what a Reaper keeps of a connection with a socket inside.
func keep(c net.Conn, own socket) net.Conn {
	if c == net.Conn(own) {
		return c
	}
	return &layered{c, own}
}

// conn returns the connection as Accept has returned it.
func (f *front) conn() net.Conn {
	if c, is := f.kept.(*layered); is {
		return c.Conn
	}
	return f.kept
}

// own returns the socket inside.
func (f *front) own() socket {
	if c, is := f.kept.(*layered); is {
		return c.own
	}
	return f.kept.(socket)
}

type conn = watch.Conn[front]

// The bits of State.Own. Those above tell a connection from others that had its number before.
const (
	dialled    = 1 << iota // it came by Watch
	attached               // its server is one of AttachHTTP
	negotiated             // its protocol is known
	leaving                // it has ended, and its server is not told yet
	requested              // net/http serves a request
	pinging                // a ping waits for the output before it
	flagBits   = iota
)

// newShard returns the shard with a number, from 1, of a number of shards.
func newShard(r *Reaper, number uint32, of int) *shard {
	s := &shard{reaper: r, http2: make(map[uint32]*http2Conn), sources: make(map[uint32]netip.Addr)}
	s.reasons = reasons{most: reasonsAtMost / of, all: make(map[uintptr]*keptReason)}
	s.ids = conntable.NewAddressTable(func(id uint32) uintptr { return address(s.At(id).Front.own()) })
	s.Init(&r.watch, number, s)
	return s
}

// locked calls a function that needs the mutex.
func (s *shard) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// config returns the settings that the shard follows.
func (s *shard) config() *Config { return s.Set.Front.(*Config) }

// address returns the address of a socket, which is its name while it is kept.
func address(own socket) uintptr { return reflect.ValueOf(own).Pointer() }

// shard returns the shard of a socket.
func (r *Reaper) shard(own socket) *shard {
	const fibonacci = 0x9E3779B97F4A7C15 // spreads addresses, which are multiples of their size
	return r.shards[uint64(address(own))*fibonacci>>32%uint64(len(r.shards))]
}

// searchPerAdd is the number of connections of which add finds out whether they are closed: two,
// so that about as many closed connections are kept as there are open ones, at most.
const searchPerAdd = 2

// add watches a connection. It reports false if the connection is watched already.
func (s *shard) add(c net.Conn, own socket, flags uint32) bool {
	from := sourcelimit.AddrOf(own.RemoteAddr()) // it is code of others, and must not find mu locked
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.ids.Find(address(own)); ok {
		return false
	}
	delete(s.reasons.all, address(own)) // its engine uses the object again
	now := s.Watcher.Clock.Elapsed()
	id, n := s.Take(now)
	s.opens++
	n.Own = flags | s.opens<<flagBits
	n.Front = front{conntable.Record{Heard: s.Watcher.Clock.Stamp().Short(), Tag: conntable.Fresh}, keep(c, own)}
	switch s.ids.Add(address(own), id); own.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		s.sources[id] = from
	}
	s.File(id, n, now)
	for range searchPerAdd {
		s.searchClosed()
	}
	return true
}

// searchClosed drops the next connection if it is closed. It reports whether it is open. The shard
// has had a connection.
func (s *shard) searchClosed() (open bool) {
	id := s.hand % s.Len()
	s.hand = id + 1
	return s.isOpen(id)
}

// isOpen drops a connection if it is closed. It reports whether it is open.
func (s *shard) isOpen(id uint32) (open bool) {
	n := s.At(id)
	if !n.Used() {
		return false
	}
	if open = !isClosed(n.Front.own()); !open {
		s.forget(id, n)
	}
	return open
}

// searchSome finds out which of the next connections are closed. It returns how many are open.
func (s *shard) searchSome(n int) (open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range min(n, int(s.Len())) {
		if s.searchClosed() {
			open++
		}
	}
	return open
}

// purge finds out which of the next connections are closed. In each tick it checks a part of all,
// and more while it finds closed ones.
func (s *shard) purge() {
	size := int(s.size())
	least := int(time.Duration(size) * s.Watcher.Clock.Tick() / searchTime)
	for n := 0; n < min(searchedPerTick, size); n += searchedAtOnce {
		if s.searchSome(searchedAtOnce) == searchedAtOnce && n >= least {
			return
		}
	}
}

// size returns how many ids of connections the shard has, free ones included.
func (s *shard) size() (n uint32) {
	s.locked(func() { n = s.Len() })
	return n
}

// Drop forgets a connection that is closed.
func (s *shard) Drop(id uint32, n *conn) {
	s.ids.Remove(address(n.Front.own()), id)
	s.stopLeaving(n)
	delete(s.http2, id)
	from, isKept := s.sources[id]
	if delete(s.sources, id); !isKept {
		from = s.reaper.sourceOf(n.Front.own())
	}
	s.reaper.giveBack(from, n.Own)
	if s.Ends.Of(id) == nil {
		s.Counters.ClosedByHandler++
	}
	s.Remove(id, n)
}

// with calls a function with the state of a connection. It does nothing if the Reaper does not
// watch the connection.
func (r *Reaper) with(c net.Conn, do func(s *shard, id uint32, n *conn)) {
	own, ok := r.root(c)
	if !ok {
		return
	}
	s := r.shard(own)
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := s.ids.Find(address(own)); ok {
		do(s, id, s.At(id))
	}
}

// fresh returns an age of the last byte below which it does not matter whether it is unread. Unread
// bytes save a connection if they are old, or if it would make room for another. They may also
// complete a handshake or a message.
func (s *shard) fresh(n *conn) time.Duration {
	lim := s.LimitsOf(n)
	if s.exact || lim.Rate.BytesPerSecond > 0 || lim.Handshake > 0 && !n.Front.record.Has(conntable.Ready) {
		return 0
	}
	return lim.ShortestIdle() / 2
}

// told begins the grace in which the server is to close a connection, and tells it, unless it was
// closed or ends by its protocol. A request that came after the kernel was asked is answered first:
// net/http cancels the context of a request if a Read fails. If the server has read it and not said
// so yet, takeBack finds it.
func (s *shard) told(id uint32, own socket, e *watch.End, closed bool) {
	s.telling.Lock()
	defer s.telling.Unlock()
	isNow := false
	s.locked(func() {
		if s.Ends.Of(id) != e {
			return
		}
		e.Told = s.Watcher.Clock.Elapsed()
		e.CloseAt = e.Told.Add(s.config().CloseGrace)
		n := s.At(id)
		s.Soon(n)
		if n.Own&requested != 0 && n.Own&leaving == 0 && !closed && staysForRequest(e.Reason.Reason) {
			s.startLeaving(n)
		}
		isNow = !closed && n.Own&leaving == 0
	})
	if isNow {
		tell(own) // it may be the code of an engine, which calls the Reaper
	}
}

// lastRead returns the record of a connection. With Config.Stamp it has the last Read, unless the
// kernel has told of a later byte.
func (s *shard) lastRead(n *conn) *conntable.Record {
	r := &n.Front.record
	if c, is := n.Front.conn().(*stampedConn); is {
		if heard := mono.Stamp(c.heard.Load() - 1); heard >= 0 {
			if heard > r.Heard.Unwrap(s.Watcher.Clock.Stamp()) {
				r.Heard = heard.Short()
			}
			r.Set(conntable.Fresh, false)
		}
	}
	return r
}
