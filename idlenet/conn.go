package idlenet

import (
	"net"

	"github.com/idlewheel/idlewheel/internal/conntable"
)

// A Conn is the Reaper's part of one connection: with it a server tells the Reaper what bytes
// cannot tell. [Reaper.Conn] returns it. Its methods are safe for concurrent use.
//
// A server may keep the Conn. From the close of the connection on the methods do nothing, ID is
// empty, and SetLimits returns [ErrNotWatched]. The zero Conn is that of a closed connection. Conns
// can be compared, and be keys of a map.
type Conn struct {
	shard *shard
	id    uint32
	mark  uint32 // of State.Own, the same for the life of the connection
}

// Conn returns the handle of a connection. The error says that c is no socket, or is
// [ErrNotWatched]: it is closed, or was neither accepted nor passed to [Reaper.Admit].
func (r *Reaper) Conn(c net.Conn) (found Conn, err error) {
	if _, ok := r.root(c); !ok {
		return Conn{}, errNoSocket(c)
	}
	r.with(c, func(s *shard, id uint32, n *conn) { found = s.handle(id, n) })
	if found == (Conn{}) {
		return Conn{}, form.NotWatched()
	}
	return found, nil
}

// handle returns the handle of a connection.
func (s *shard) handle(id uint32, n *conn) Conn { return Conn{s, id, n.Own >> flagBits} }

// with calls a function with the state of the connection, unless it is closed.
func (c Conn) with(do func(s *shard, id uint32, n *conn)) {
	s := c.shard
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.At(c.id); n.Used() && n.Own>>flagBits == c.mark {
		do(s, c.id, n)
	}
}

// ID returns the name of the connection for [Reaper.Kick] and logs. It is empty if the connection
// is closed.
func (c Conn) ID() (id ConnID) {
	c.with(func(s *shard, number uint32, n *conn) { id = s.ID(number, n) })
	return id
}

// SetRemote sets the address that logs and [Reaper.Inspect] show, for a connection that comes
// through a proxy. If addr is nil, it is the address of the socket again.
func (c Conn) SetRemote(addr net.Addr) {
	c.with(func(s *shard, _ uint32, n *conn) { s.Remotes.Set(n, addr) })
}

// SetGroup says that the connection shares a part of the way to its peer with all connections of
// the same name: an upstream, a zone, a proxy. If all of them that were busy fall silent together,
// verdicts about their peers are suspended, as they are if all connections of the server do.
// Connections with the same address on either side, or from the same network, are grouped without
// it. An empty name takes the connection out of its group.
func (c Conn) SetGroup(name string) {
	c.with(func(s *shard, id uint32, _ *conn) { s.Groups.SetName(id, name) })
}

// Ready ends the handshake: Config.HandshakeTimeout does not apply any more.
func (c Conn) Ready() { c.with((*shard).ready) }

func (s *shard) ready(_ uint32, n *conn) {
	n.Front.record.Set(conntable.Ready, true)
	if knows := &s.reaper.knowsReady; !knows.Load() {
		knows.Store(true)
	}
}

// Touch restarts the idle timeouts, as if bytes had passed in both directions.
func (c Conn) Touch() { c.with((*shard).Touch) }

// Hold says that the server works on a request: the connection is not idle, however silent it is,
// until Release was called as often as Hold. All other limits and heartbeats go on. Do not hold
// around the Read of the next request: then no idle timeout would ever end the connection.
func (c Conn) Hold() { c.with(func(_ *shard, _ uint32, n *conn) { n.Hold() }) }

// Release takes one Hold back. After the last one the idle timeouts restart. More calls of Release
// than of Hold do nothing.
func (c Conn) Release() { c.with((*shard).release) }

// release is Release for a server, which does not take back the hold of [Reaper.ConnState].
func (s *shard) release(id uint32, n *conn) {
	if s.Release(id, n); n.Own&requested != 0 && !n.Held() {
		n.Hold()
	}
}

// Exempt takes the connection out of all limits, or puts it back. When it is put back, its idle
// timeouts restart, and all other limits count as if it had never been out.
func (c Conn) Exempt(on bool) {
	c.with(func(s *shard, id uint32, n *conn) { s.Exempt(id, n, on) })
}

// SetLimits gives the connection limits of its own for the rest of its life: after a login, or for
// one long download. The idle timeouts count from the last activity, the maximum age and the
// handshake from the opening. Later calls of Update do not change them. A second call replaces all
// of the first one. A zero is the limit of the Config, and a negative value is none. The error says
// what is wrong with the limits, or is [ErrNotWatched].
func (c Conn) SetLimits(limits ConnLimits) error {
	err := form.NotWatched()
	c.with(func(s *shard, id uint32, n *conn) { err = s.limit(id, n, limits) })
	return err
}

// limit gives a connection limits of its own, if the kernel can keep them for its socket.
func (s *shard) limit(id uint32, n *conn, own ConnLimits) error {
	if err := checkOwn(n, own, s.config().Stamp); err != nil {
		return err
	}
	return s.SetLimits(id, n, own)
}

// BeginMessage says that a message of the peer begins to come in: Config.MinRate applies until
// EndMessage. It does nothing while a message is open.
func (c Conn) BeginMessage() { c.with((*shard).BeginMessage) }

// EndMessage says that the message is complete. With MinRate.Always the next message begins.
func (c Conn) EndMessage() { c.with((*shard).EndMessage) }

// Reason returns why a connection has ended, or nil if it has not. It is known until a minute after
// the connection was closed, or until about 32,768 more have ended and are closed.
func (r *Reaper) Reason(c net.Conn) *ReapError {
	own, ok := r.root(c)
	if !ok {
		return nil
	}
	s := r.shard(own)
	s.mu.Lock()
	defer s.mu.Unlock()
	id, open := s.ids.Find(address(own))
	switch e := s.Ends.Of(id); {
	case !open:
		return s.reasons.of(address(own))
	case e == nil:
		return nil
	default:
		return e.Reason
	}
}
