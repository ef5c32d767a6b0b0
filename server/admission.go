package server

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/time/rate"
)

// A rejection is the reason why a new connection is closed before the handler sees it.
type rejection int

const (
	sourceLimit rejection = iota
	acceptRate
	noDescriptors
	rejections
)

// An admission admits or rejects new connections by their source and by the rate of all. Safe for
// concurrent use.
type admission struct {
	sources *Sources      // nil if there is no limit
	rate    *rate.Limiter // of all connections; nil if there is no limit

	rejected [rejections]atomic.Uint64
	last     atomic.Pointer[string] // why the last connection was rejected; nil if none was
}

func newAdmission(cfg *Config) (a *admission, err error) {
	a = &admission{}
	if cfg.AcceptRate > 0 {
		a.rate = newRate(cfg.AcceptRate)
	}
	if cfg.Sources.isSet() {
		a.sources, err = NewSources(cfg.Sources)
	}
	return a, err
}

// newRate returns a token bucket for n connections per second, and twice as many at once.
func newRate(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(n), 2*n) }

// rejectedConn is the Context of a rejected connection between OnOpen and OnClose, which gnet calls
// right after.
type rejectedConn struct{}

// admit reports whether a new connection is served. If not, the caller closes it.
func (a *admission) admit(c gnet.Conn) bool {
	if a.sources == nil && a.rate == nil {
		return true
	}
	now := time.Now()
	if a.sources != nil { // first, so that one source does not use up the rate of all
		if err := a.sources.admit(addrOf(c), now); err != nil {
			a.reject(c, sourceLimit, err.Error())
			return false
		}
	}
	if a.rate == nil || a.rate.AllowN(now, 1) {
		return true
	}
	if a.sources != nil {
		a.sources.Release(addrOf(c))
	}
	a.reject(c, acceptRate, "more connections than the accept rate")
	return false
}

// reject counts and marks a connection that the caller closes.
func (a *admission) reject(c gnet.Conn, reason rejection, why string) {
	c.SetContext(rejectedConn{})
	a.rejected[reason].Add(1)
	a.last.Store(&why)
}

// total returns the number of rejected connections, and why the last one was.
func (a *admission) total() (n uint64, last string) {
	for i := range a.rejected {
		n += a.rejected[i].Load()
	}
	if why := a.last.Load(); why != nil {
		last = *why
	}
	return n, last
}

// release reports whether a closed connection had been admitted, and gives back what it took of its
// source.
func (a *admission) release(c gnet.Conn) bool {
	if c.Context() == (rejectedConn{}) {
		return false
	}
	if a.sources != nil {
		a.sources.Release(addrOf(c))
	}
	return true
}

// addrOf returns the remote address of a connection, the zero Addr for a unix socket.
func addrOf(c gnet.Conn) netip.Addr {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr, _ := netip.AddrFromSlice(tcp.IP)
	return addr
}
