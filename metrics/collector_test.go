package metrics_test

import (
	"context"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// A handler obeys the first byte of each message: h holds the connection, c closes it, and b
// blocks the event loop. It ignores other bytes.
type handler struct {
	gnet.BuiltinEventEngine
	booted chan gnet.Engine
	reaper *idle.Reaper
	block  chan struct{} // ends the blocking when closed
}

func (h *handler) OnBoot(eng gnet.Engine) gnet.Action {
	h.booted <- eng
	return gnet.None
}

func (h *handler) OnTraffic(c gnet.Conn) gnet.Action {
	switch b, _ := c.Next(-1); b[0] {
	case 'h':
		conn, _ := h.reaper.Conn(c)
		conn.Hold()
	case 'c':
		return gnet.Close
	case 'b':
		<-h.block
	}
	return gnet.None
}

// serve runs a server until the test ends, on one event loop unless options say otherwise. It
// returns the address.
func serve(t *testing.T, cfg idle.Config, options ...gnet.Option) (*handler, string) {
	t.Helper()
	h := &handler{booted: make(chan gnet.Engine, 1), block: make(chan struct{})}
	var err error
	h.reaper, err = idle.Middleware(h, cfg)
	require.NoError(t, err)
	addr := freeAddr(t)
	ran := make(chan error, 1)
	options = append([]gnet.Option{gnet.WithNumEventLoop(1)}, options...)
	go func() { ran <- gnet.Run(h.reaper, "tcp://"+addr, options...) }()
	eng := <-h.booted
	t.Cleanup(func() {
		require.NoError(t, eng.Stop(context.Background()))
		require.NoError(t, <-ran)
	})
	return h, addr
}

// freeAddr returns an address with a free port.
func freeAddr(t *testing.T) string {
	t.Helper()
	l := sockets.Listen(t, "tcp", "127.0.0.1:0")
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// dial opens a connection and sends a message, unless it is empty.
func dial(t *testing.T, addr, message string) net.Conn {
	t.Helper()
	c := sockets.Dial(t, "tcp", addr)
	if message != "" {
		_, err := c.Write([]byte(message))
		require.NoError(t, err)
	}
	return c
}

// TestMetricsCountWhatHappened opens six connections, and three of them end in different ways.
func TestMetricsCountWhatHappened(t *testing.T) {
	h, addr := serve(t, idle.Config{
		ReadTimeout: time.Minute, MaxConnections: 100, Tick: 10 * time.Millisecond, FirstByteTimeout: 200 * time.Millisecond,
		Heartbeat: idle.Heartbeat{Interval: time.Hour, Ping: func(gnet.Conn) []byte { return nil }},
	})
	dial(t, addr, "h")
	dial(t, addr, "x")
	dial(t, addr, "x")
	require.NoError(t, dial(t, addr, "x").Close())
	dial(t, addr, "c")
	silent := dial(t, addr, "")
	require.NoError(t, silent.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err := silent.Read(make([]byte, 1))
	require.ErrorContains(t, err, "EOF", "the silent connection is reaped")
	require.Eventually(t, func() bool {
		s := h.reaper.Stats()
		return s.Closed == 3 && s.Reads == 5
	}, 20*time.Second, 10*time.Millisecond, "three connections are closed, and five have sent a message")

	c := metrics.NewCollector(h.reaper)
	want := `
# HELP idlewheel_connections Connections that are open now, by state.
# TYPE idlewheel_connections gauge
idlewheel_connections{state="exempt"} 0
idlewheel_connections{state="handshake"} 0
idlewheel_connections{state="held"} 1
idlewheel_connections{state="leaving"} 0
idlewheel_connections{state="observed"} 0
idlewheel_connections{state="open"} 2
idlewheel_connections{state="stalled"} 0
idlewheel_connections{state="unknown"} 0
# HELP idlewheel_connections_limit Largest number of open connections; 0 if it is unlimited.
# TYPE idlewheel_connections_limit gauge
idlewheel_connections_limit 100
# HELP idlewheel_connections_opened_total Connections that were opened.
# TYPE idlewheel_connections_opened_total counter
idlewheel_connections_opened_total 6
# HELP idlewheel_reads_total Calls of the handler with new bytes from the peer.
# TYPE idlewheel_reads_total counter
idlewheel_reads_total 5
# HELP idlewheel_wheel_entries Entries in the timing wheels: one for each connection.
# TYPE idlewheel_wheel_entries gauge
idlewheel_wheel_entries 3
`
	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(want), "idlewheel_connections", "idlewheel_connections_limit",
		"idlewheel_connections_opened_total", "idlewheel_reads_total", "idlewheel_wheel_entries"))
	page := scrape(t, c)
	for _, line := range []string{
		`idlewheel_connections_closed_total{reason="no_first_byte"} 1`,
		`idlewheel_connections_closed_total{reason="peer"} 1`,
		`idlewheel_connections_closed_total{reason="handler"} 1`,
		`idlewheel_connections_closed_total{reason="error"} 0`,
		`idlewheel_connections_closed_total{reason="read_idle"} 0`,
		`idlewheel_reap_lateness_seconds_count 1`,
		`idlewheel_reap_lateness_seconds_bucket{le="10"} 1`,
		`idlewheel_idle_events_total{reason="all_idle"} 0`,
		`idlewheel_connections_rejected_total{reason="max_connections"} 0`,
	} {
		require.Contains(t, page, line+"\n")
	}
	require.NotContains(t, page, "127.0.0.1", "no label has a value per connection")
}

// scrape returns the text that Prometheus reads.
func scrape(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code, w.Body)
	return w.Body.String()
}

func TestTheExpositionPassesPromlint(t *testing.T) {
	r, err := idle.Middleware(&handler{}, idle.Config{ReadTimeout: time.Minute})
	require.NoError(t, err)
	problems, err := testutil.CollectAndLint(metrics.NewCollector(r))
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestAScrapeDoesNotWaitForABlockedLoop(t *testing.T) {
	h, addr := serve(t, idle.Config{ReadTimeout: time.Minute})
	dial(t, addr, "x")
	dial(t, addr, "b")
	defer close(h.block)
	c := metrics.NewCollector(h.reaper)
	require.Eventually(t, func() bool {
		page := scrape(t, c)
		return strings.Contains(page, `idlewheel_connections{state="unknown"} 2`) &&
			strings.Contains(page, `idlewheel_connections{state="open"} 0`) && strings.Contains(page, "idlewheel_connections_opened_total 2")
	}, 20*time.Second, 10*time.Millisecond, "the state of both connections is unknown")
}
