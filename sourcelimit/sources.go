// Package sourcelimit limits the connections of each client, by its network: their number, and how
// fast it opens new ones. Servers of packages server and idlenet have it built in. A server behind
// a proxy uses it by itself.
package sourcelimit

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/idlewheel/idlewheel/internal/network"
)

// ErrTooMany is returned by Sources.Admit for a source that has too many connections, or
// opens them too fast.
var ErrTooMany = errors.New("sourcelimit: too many connections of one source")

// Limits are the limits of one source. A source is a network rather than an address. The zero
// value limits nothing.
type Limits struct {
	// Connections is the limit of open connections of a source. If zero, there is no limit.
	Connections int
	// Rate is the limit of new connections of a source per second, on average; twice as many may
	// arrive at once. If zero, there is no limit.
	Rate int
	// IPv4Bits and IPv6Bits are the lengths of the prefixes that count as one source. If zero, they
	// are 32 and 64: a customer usually has all addresses of an IPv6 network.
	IPv4Bits, IPv6Bits int
	// Exempt are networks without limits, such as those of load balancers.
	Exempt []netip.Prefix
	// Entries bounds the memory for sources without an open connection, about 160 bytes each. If
	// zero, it is 65,536. A source that was forgotten starts again with its full burst.
	Entries int
}

const defaultEntries = 1 << 16

// check fills in the defaults, and returns an error that joins all mistakes.
func (l *Limits) check() error {
	l.IPv4Bits = cmp.Or(l.IPv4Bits, network.IPv4Bits)
	l.IPv6Bits = cmp.Or(l.IPv6Bits, network.IPv6Bits)
	l.Entries = cmp.Or(l.Entries, defaultEntries)
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("sourcelimit: "+format, args...))
		}
	}
	refuse(l.Connections < 0, "Connections is %d: set a positive number, or 0 for any number", l.Connections)
	refuse(l.Rate < 0, "Rate is %d: set a positive number, or 0 for any number", l.Rate)
	refuse(l.IPv4Bits < 0 || l.IPv4Bits > 32, "IPv4Bits is %d: set 1 to 32", l.IPv4Bits)
	refuse(l.IPv6Bits < 0 || l.IPv6Bits > 128, "IPv6Bits is %d: set 1 to 128", l.IPv6Bits)
	refuse(l.Entries < 0, "Entries is %d: set a positive number", l.Entries)
	l.Exempt = slices.Clone(l.Exempt)
	for i, p := range l.Exempt {
		refuse(!p.IsValid(), "Exempt has the prefix %v, which is not valid", p)
		if p.Addr().Is4In6() && p.Bits() >= 96 { // addresses are compared without the mapping
			l.Exempt[i] = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
	}
	return errors.Join(errs...)
}

// Sources counts the connections of each source. A server with Config.Sources has one for the
// remote addresses of its connections. Behind a proxy that sends the address of the client later,
// as the PROXY protocol does, leave Config.Sources zero: make a Sources with [New], call Admit when
// the address is known, and Release when the connection is closed. Safe for concurrent use.
type Sources struct {
	limits Limits

	mu  sync.Mutex
	all map[netip.Prefix]*source // guarded by mu
}

type source struct {
	open int // connections
	rate *rate.Limiter
}

// New returns a Sources without connections, or an error that joins all that is wrong with
// the limits.
func New(limits Limits) (*Sources, error) {
	if err := limits.check(); err != nil {
		return nil, err
	}
	return &Sources{limits: limits, all: map[netip.Prefix]*source{}}, nil
}

// Admit counts a connection from an address, or returns an error that wraps ErrTooMany and
// has the numbers. The caller calls Release when an admitted connection is closed.
func (s *Sources) Admit(from netip.Addr) error { return s.admit(from, time.Now()) }

func (s *Sources) admit(from netip.Addr, now time.Time) error {
	key, limited := s.key(from)
	if !limited {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	src := s.all[key]
	if src == nil {
		s.makeRoom()
		src = &source{rate: NewRate(s.limits.Rate)}
		s.all[key] = src
	}
	switch {
	case s.limits.Connections > 0 && src.open >= s.limits.Connections:
		return fmt.Errorf("%w: %v has %d open", ErrTooMany, key, src.open)
	case !src.rate.AllowN(now, 1):
		return fmt.Errorf("%w: %v opens more than %d a second", ErrTooMany, key, s.limits.Rate)
	}
	src.open++
	return nil
}

// Release undoes Admit.
func (s *Sources) Release(from netip.Addr) {
	key, limited := s.key(from)
	if !limited {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	src := s.all[key]
	if src == nil || src.open == 0 {
		return
	}
	if src.open--; src.open == 0 && (s.limits.Rate == 0 || len(s.all) > s.limits.Entries) {
		delete(s.all, key)
	}
}

// key returns the source of an address, and whether it has limits.
func (s *Sources) key(from netip.Addr) (key netip.Prefix, limited bool) {
	from = from.Unmap().WithZone("")
	exempt := slices.ContainsFunc(s.limits.Exempt, func(p netip.Prefix) bool { return p.Contains(from) })
	// The address of a unix socket is not valid.
	limited = from.IsValid() && !exempt && (s.limits.Connections > 0 || s.limits.Rate > 0)
	return network.Of(from, s.limits.IPv4Bits, s.limits.IPv6Bits), limited
}

// makeRoom forgets a source without connections, in the random order of a map, if there are
// too many. Sources with connections stay: their number is bounded by the number of connections.
func (s *Sources) makeRoom() {
	if len(s.all) < s.limits.Entries {
		return
	}
	tried := 0
	for key, src := range s.all {
		if src.open == 0 {
			delete(s.all, key)
			return
		}
		if tried++; tried == 16 {
			return
		}
	}
}

// NewRate returns a token bucket for n connections per second, and twice as many at once. If n is
// zero, there is no limit.
func NewRate(n int) *rate.Limiter {
	if n == 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(n), 2*n)
}

// AddrOf returns the address of a peer, the zero Addr for a unix socket.
func AddrOf(peer net.Addr) netip.Addr {
	return network.AddrOf(peer)
}
