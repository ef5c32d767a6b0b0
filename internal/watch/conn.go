package watch

import (
	"net"

	"github.com/idlewheel/idlewheel/internal/connstate"
)

// This file has what a server tells of a connection, which is open.

// Remotes are the addresses that reports show instead of those of sockets.
type Remotes[C any] map[*Conn[C]]net.Addr

// Set sets the address of a connection. If addr is nil, it is that of the socket.
func (r Remotes[C]) Set(c *Conn[C], addr net.Addr) {
	if addr == nil {
		delete(r, c)
	} else {
		r[c] = addr
	}
}

// of returns the address that reports show.
func (r Remotes[C]) of(c *Conn[C], port Port[C]) net.Addr {
	if addr, ok := r[c]; ok {
		return addr
	}
	return port.Remote(c)
}

// Touch restarts the idle timeouts. The connection may have been held beyond what the wheel knows.
func (s *Shard[C]) Touch(id uint32, c *Conn[C]) {
	c.Touch(s.clock)
	if !s.asks || s.Set.Draining() { // a look finds an idle timeout in time
		s.Rearm(id, c)
	}
}

// Release takes one Hold back. After the last one the idle timeouts restart.
func (s *Shard[C]) Release(id uint32, c *Conn[C]) {
	if c.Release() {
		s.Touch(id, c)
	}
}

// Exempt takes a connection out of all limits, or puts it back and restarts its idle timeouts.
func (s *Shard[C]) Exempt(id uint32, c *Conn[C], on bool) {
	if c.Is(connstate.Exempt) != on {
		c.Spare(connstate.Exempt, on)
		delete(s.Large, id)
		c.Touch(s.clock)
		s.Rearm(id, c)
	}
}

// BeginMessage says that a message begins, unless one is open or there is no minimum rate.
func (s *Shard[C]) BeginMessage(id uint32, c *Conn[C]) {
	if c.BeginMessage(s.clock, s.LimitsOf(c).Rate) {
		s.Rearm(id, c)
	}
}

// EndMessage says that the message is complete. A look at the end of its window finds that, unless
// the next message has begun: its window may begin before.
func (s *Shard[C]) EndMessage(id uint32, c *Conn[C]) {
	rate := s.LimitsOf(c).Rate
	if c.EndMessage(s.clock, rate); rate.Always {
		s.Rearm(id, c)
	}
}
