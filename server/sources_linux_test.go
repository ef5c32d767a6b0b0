package server

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

func TestSourceLimitsAreChecked(t *testing.T) {
	for want, l := range map[string]SourceLimits{
		"Connections is -1": {Connections: -1}, "Rate is -1": {Rate: -1}, "IPv4Bits is 33": {IPv4Bits: 33},
		"IPv6Bits is 129": {IPv6Bits: 129}, "Entries is -1": {Entries: -1}, "not valid": {Exempt: []netip.Prefix{{}}},
	} {
		_, err := New(Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, Idle: idleConfig, Sources: l})
		require.ErrorContains(t, err, want)
	}
}

func TestAServerLimitsItsSources(t *testing.T) {
	h, log := &drained{}, &syncbuf.Buffer{}
	srv, stop := startIn(t, Config{
		Addresses: []string{"127.0.0.1:0"}, Handler: h, Sources: SourceLimits{Connections: 3},
		Idle: idle.Config{ReadTimeout: time.Minute}, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	dialFrom := func(ip string) (net.Conn, bool) {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).Dial("tcp", srv.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c, pingPong(c, 5*time.Second) == nil
	}
	var first net.Conn
	for i := range 5 {
		c, served := dialFrom("127.0.0.7")
		require.Equal(t, i < 3, served)
		if i == 0 {
			first = c
		}
	}
	require.Equal(t, Rejected{Source: 2}, srv.Stats().Rejected)
	_, served := dialFrom("127.0.0.8")
	require.True(t, served, "another source")
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool { _, served := dialFrom("127.0.0.7"); return served }, 10*time.Second, 10*time.Millisecond)
	stop()
	require.Regexp(t, `connections were rejected" number=\d+ last=.*127.0.0.7/32 has 3 open`, log, "all of them are logged")
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Len(t, h.reasons, 5, "the handler does not see rejected connections")
}

func TestAServerLimitsTheRateOfAll(t *testing.T) {
	srv, stop := startIn(t, Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, AcceptRate: 20, Idle: idle.Config{ReadTimeout: time.Minute}})
	served := 0
	for range 100 {
		c := dial(t, srv.Addr())
		if pingPong(c, 5*time.Second) == nil {
			served++
		}
		c.Close()
	}
	require.GreaterOrEqual(t, served, 40)
	require.Equal(t, Rejected{AcceptRate: uint64(100 - served)}, srv.Stats().Rejected)
	require.NotZero(t, srv.Stats().Rejected.Total())
	stop()
}
