package sourcelimit

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newTestSources(t *testing.T, limits Limits) *Sources {
	t.Helper()
	s, err := New(limits)
	require.NoError(t, err)
	return s
}

func TestLimitsAreChecked(t *testing.T) {
	for want, l := range map[string]Limits{
		"Connections is -1": {Connections: -1}, "Rate is -1": {Rate: -1}, "IPv4Bits is 33": {IPv4Bits: 33},
		"IPv6Bits is 129": {IPv6Bits: 129}, "Entries is -1": {Entries: -1}, "not valid": {Exempt: []netip.Prefix{{}}},
	} {
		_, err := New(l)
		require.ErrorContains(t, err, want)
	}
}

func TestConnectionsOfASource(t *testing.T) {
	s := newTestSources(t, Limits{Connections: 2, IPv4Bits: 24, Exempt: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	addr := netip.MustParseAddr
	require.NoError(t, s.Admit(addr("192.0.2.1")))
	require.NoError(t, s.Admit(addr("::ffff:192.0.2.2")))
	err := s.Admit(addr("192.0.2.3"))
	require.ErrorIs(t, err, ErrTooMany)
	require.ErrorContains(t, err, "192.0.2.0/24 has 2 open")
	require.NoError(t, s.Admit(addr("192.0.3.1")), "another source")
	s.Release(addr("192.0.2.1"))
	require.NoError(t, s.Admit(addr("192.0.2.3")))
	for range 5 {
		require.NoError(t, s.Admit(addr("10.1.2.3")), "exempt")
		require.NoError(t, s.Admit(netip.Addr{}), "a unix socket")
	}
	require.NoError(t, s.Admit(addr("2001:db8::1%eth0")))
	require.NoError(t, s.Admit(addr("2001:db8::2")))
	require.ErrorIs(t, s.Admit(addr("2001:db8:0:0:ffff::3")), ErrTooMany, "the same /64")
	require.NoError(t, s.Admit(addr("2001:db8:0:1::3")))
	s.Release(addr("203.0.113.1")) // it has no connection
}

func TestRateOfASource(t *testing.T) {
	s := newTestSources(t, Limits{Rate: 10})
	now := time.Now()
	from := netip.MustParseAddr("192.0.2.1")
	admitted := 0
	for range 100 {
		if s.admit(from, now) == nil {
			admitted++
			s.Release(from)
		}
	}
	require.Equal(t, 20, admitted, "twice the rate at once")
	for i := range 1000 { // over ten seconds
		if s.admit(from, now.Add(time.Duration(i)*10*time.Millisecond)) == nil {
			admitted++
			s.Release(from)
		}
	}
	require.InDelta(t, 120, admitted, 1)
	require.ErrorContains(t, s.admit(from, now.Add(9995*time.Millisecond)), "192.0.2.1/32 opens more than 10 a second")
}

func TestARateHoldsWithATinyTable(t *testing.T) {
	s := newTestSources(t, Limits{Rate: 1, Entries: 1})
	from, now, admitted := netip.MustParseAddr("192.0.2.1"), time.Now(), 0
	for range 100 {
		if s.admit(from, now) == nil {
			admitted++
			s.Release(from)
		}
	}
	require.Equal(t, 2, admitted)
}

func TestAnExemptPrefixMayBeMapped(t *testing.T) {
	exempt := []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}
	s := newTestSources(t, Limits{Connections: 1, Exempt: exempt})
	for range 3 {
		require.NoError(t, s.Admit(netip.MustParseAddr("10.0.0.1")))
	}
	require.Equal(t, "::ffff:10.0.0.0/104", exempt[0].String(), "the slice of the caller is not changed")
}

func TestTheTableOfSourcesIsBounded(t *testing.T) {
	const entries = 1600
	s := newTestSources(t, Limits{Connections: 1, Rate: 10, Entries: entries})
	size := func() int { return len(s.all) }
	for i := range 100_000 {
		from := netip.AddrFrom4([4]byte{192, byte(i >> 16), byte(i >> 8), byte(i)})
		require.NoError(t, s.Admit(from))
		s.Release(from)
	}
	require.LessOrEqual(t, size(), entries)
	var held []netip.Addr
	for i := range 10_000 {
		from := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		require.NoError(t, s.Admit(from))
		held = append(held, from)
	}
	for _, from := range held {
		require.Error(t, s.Admit(from), "a source with connections is not forgotten")
	}
	for _, from := range held {
		s.Release(from)
		s.Release(from) // it has no connection
	}
	require.LessOrEqual(t, size(), entries)
	last := held[len(held)-1]
	require.NoError(t, s.Admit(last))
	require.Error(t, s.Admit(last), "a second Release makes no room")
	s = newTestSources(t, Limits{Connections: 1})
	require.NoError(t, s.Admit(held[0]))
	s.Release(held[0])
	require.Zero(t, size(), "without a rate nothing is kept")
}

func TestSourcesAreSafeForConcurrentUse(t *testing.T) {
	s := newTestSources(t, Limits{Connections: 5, Rate: 1 << 20})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 1000 {
				from := netip.AddrFrom4([4]byte{10, 0, 0, byte(i % 50)})
				if err := s.Admit(from); err == nil {
					s.Release(from)
				} else if g == 0 {
					_ = fmt.Sprint(err)
				}
			}
		})
	}
	all.Wait()
	for _, src := range s.all {
		require.Zero(t, src.open)
	}
}
