package server

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// A rejection is the reason why a new connection is closed before the handler sees it.
type rejection int

const (
	sourceLimit rejection = iota
	acceptRate
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

// admit reports whether a new connection from an address is served. If so, the caller calls release
// when it is closed.
func (a *admission) admit(from netip.Addr) bool {
	if a.sources == nil && a.rate == nil {
		return true
	}
	now := time.Now()
	if a.sources != nil { // first, so that one source does not use up the rate of all
		if err := a.sources.admit(from, now); err != nil {
			a.reject(sourceLimit, err.Error())
			return false
		}
	}
	if a.rate == nil || a.rate.AllowN(now, 1) {
		return true
	}
	a.release(from)
	a.reject(acceptRate, "more connections than the accept rate")
	return false
}

// reject counts a connection that is not served.
func (a *admission) reject(reason rejection, why string) {
	a.rejected[reason].Add(1)
	a.last.Store(&why)
}

// release gives back what an admitted connection took of its source.
func (a *admission) release(from netip.Addr) {
	if a.sources != nil {
		a.sources.Release(from)
	}
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

// addrOf returns the address of a peer, the zero Addr for a unix socket.
func addrOf(peer net.Addr) netip.Addr {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr, _ := netip.AddrFromSlice(tcp.IP)
	return addr
}
