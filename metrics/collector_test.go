package metrics_test

import (
	"errors"
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
	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/internal/testing/engine"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/testpeer"
	"github.com/idlewheel/idlewheel/metrics"
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// A handler obeys the first byte of each message: h holds the connection, c closes it, and b
// blocks the event loop. It ignores other bytes.
type handler struct {
	gnet.BuiltinEventEngine
	booted chan engine.Boot
	reaper *idle.Reaper
	block  chan struct{} // ends the blocking when closed
}

func (h *handler) OnBoot(eng gnet.Engine) gnet.Action {
	h.booted <- engine.NewBoot(eng)
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
func serve(t testing.TB, cfg idle.Config, options ...gnet.Option) (*handler, string) {
	t.Helper()
	h := &handler{booted: make(chan engine.Boot, 1), block: make(chan struct{})}
	var err error
	h.reaper, err = idle.Middleware(h, cfg)
	require.NoError(t, err)
	options = append([]gnet.Option{gnet.WithNumEventLoop(1)}, options...)
	return h, engine.Serve(t, h.reaper, h.booted, "tcp://127.0.0.1:0", options...).String()
}

// dial opens a connection and sends a message, unless it is empty.
func dial(t testing.TB, addr, message string) net.Conn {
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
	_, err := silent.Read(make([]byte, 1))
	require.ErrorContains(t, err, "EOF", "the silent connection is reaped")
	require.Eventually(t, func() bool {
		s := h.reaper.Stats()
		return s.Closed == 3 && s.Reads == 5
	}, 20*time.Second, 10*time.Millisecond, "three connections are closed, and five have sent a message")

	c := metrics.NewCollector(h.reaper)
	page := scrape(t, c)
	for _, line := range []string{
		"# TYPE idlewheel_connections gauge",
		"# HELP idlewheel_reads_total Calls of the handler with new bytes from the peer.\n# TYPE idlewheel_reads_total counter",
		`idlewheel_connections{state="exempt"} 0`, `idlewheel_connections{state="handshake"} 0`, `idlewheel_connections{state="held"} 1`,
		`idlewheel_connections{state="leaving"} 0`, `idlewheel_connections{state="observed"} 0`, `idlewheel_connections{state="open"} 2`,
		`idlewheel_connections{state="stalled"} 0`, `idlewheel_connections{state="unknown"} 0`,
		"idlewheel_connections_limit 100", "idlewheel_connections_opened_total 6", "idlewheel_reads_total 5", "idlewheel_wheel_entries 3",
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
		require.Contains(t, "\n"+page, "\n"+line+"\n")
	}
	require.Equal(t, 8, strings.Count(page, "\nidlewheel_connections{"))
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

// TestTheExpositionPassesPromlint also has a listener of package idlenet.
func TestTheExpositionPassesPromlint(t *testing.T) {
	r, err := idle.Middleware(&handler{}, idle.Config{ReadTimeout: time.Minute})
	require.NoError(t, err)
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	ln, err := idlenet.Listen(inner, idlenet.Config{ReadTimeout: time.Minute, Tick: 10 * time.Millisecond, MaxConnections: 7})
	require.NoError(t, err)
	defer ln.Close()
	dial(t, ln.Addr().String(), "")
	accepted, err := ln.Accept()
	require.NoError(t, err)
	defer accepted.Close()
	defer ln.Forget(accepted) // ends the goroutine of the Reaper
	for _, of := range []reap.Reaper{r, ln} {
		problems, err := testutil.CollectAndLint(metrics.NewCollector(of))
		require.NoError(t, err)
		require.Empty(t, problems)
	}
	page := scrape(t, metrics.NewCollector(ln))
	for _, line := range []string{
		`connections{state="open"} 1`, `connections{state="unknown"} 0`, "connections_limit 7", "connections_opened_total 1",
	} {
		require.Contains(t, page, "\nidlewheel_"+line+"\n")
	}
}

// TestAListenerTellsWhyItRefused has one connection that may stay, and others for each reason.
func TestAListenerTellsWhyItRefused(t *testing.T) {
	for reason, cfg := range map[string]idlenet.Config{
		"source":          {Sources: sourcelimit.Limits{Connections: 1}, AcceptRate: 1},
		"accept_rate":     {AcceptRate: 1},
		"max_connections": {MaxConnections: 1, ShedProtect: time.Hour},
	} {
		cfg.ReadTimeout, cfg.Tick = time.Minute, 10*time.Millisecond
		r, err := idlenet.New(cfg)
		require.NoError(t, err)
		inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
		refused := 0
		for range 5 {
			dial(t, inner.Addr().String(), "")
			c, err := inner.Accept()
			require.NoError(t, err)
			defer c.Close()
			defer r.Forget(c)
			if _, err = r.Admit(c); errors.Is(err, idlenet.ErrRefused) {
				refused++
			}
		}
		require.NotZero(t, refused, reason)
		want := map[string]float64{"max_connections": 0}
		want[reason] = float64(refused)
		require.Equal(t, want, values(t, metrics.NewCollector(r), "idlewheel_connections_rejected_total"))
	}
}

func TestAScrapeDoesNotWaitForABlockedLoop(t *testing.T) {
	t.Parallel()
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

// values returns the values of a metric by its label. Without a label, the key is empty.
func values(t testing.TB, c prometheus.Collector, name string) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c))
	families, err := reg.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			label := ""
			for _, l := range m.GetLabel() {
				label = l.GetValue()
			}
			all[label] = m.GetGauge().GetValue() + m.GetCounter().GetValue() // one of them is zero
		}
	}
	require.NotEmpty(t, all, name)
	return all
}

// sum returns the sum of all values.
func sum(all map[string]float64) (n float64) {
	for _, value := range all {
		n += value
	}
	return n
}

// TestConnectionsAreCountedOnceWhileALoopIsBlocked blocks one of two loops. The loops are scanned
// in order, so both cases occur: the blocked loop is first, and it is last.
func TestConnectionsAreCountedOnceWhileALoopIsBlocked(t *testing.T) {
	t.Parallel()
	const n = 10
	for name, loop := range map[string]int{"the first loop": 0, "the second loop": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Every second connection is on the same loop.
			h, addr := serve(t, idle.Config{ReadTimeout: time.Minute},
				gnet.WithNumEventLoop(2), gnet.WithLoadBalancing(gnet.RoundRobin))
			defer close(h.block)
			var conns []net.Conn
			for range n {
				conns = append(conns, dial(t, addr, "x"))
			}
			require.Eventually(t, func() bool { return h.reaper.Stats().Opened == n }, 20*time.Second, time.Millisecond)
			_, err := conns[loop].Write([]byte("b"))
			require.NoError(t, err)
			c := metrics.NewCollector(h.reaper)
			for began := time.Now(); ; {
				got := values(t, c, "idlewheel_connections")
				require.EqualValues(t, n, sum(got), "%v", got)
				if got[metrics.StateUnknown] == n {
					return
				}
				require.Less(t, time.Since(began), 20*time.Second, "the loop is not blocked")
			}
		})
	}
}

// TestAVerdictIsCountedAsClosedOrObserved has one idle connection.
func TestAVerdictIsCountedAsClosedOrObserved(t *testing.T) {
	t.Parallel()
	const closed, observed = "idlewheel_connections_closed_total", "idlewheel_connections_observed_total"
	for only, names := range map[bool][2]string{false: {closed, observed}, true: {observed, closed}} {
		h, addr := serve(t, idle.Config{ReadTimeout: 100 * time.Millisecond, Tick: 10 * time.Millisecond, ObserveOnly: only})
		dial(t, addr, "x")
		require.Eventually(t, func() bool {
			s := h.reaper.Stats()
			return s.Observed[reap.ReadIdle]+s.Reaped[reap.ReadIdle] == 1
		}, 20*time.Second, time.Millisecond)
		c := metrics.NewCollector(h.reaper)
		counted := values(t, c, names[0])
		require.EqualValues(t, 1, counted["read_idle"])
		require.EqualValues(t, 1, sum(counted), "%v", counted)
		require.Zero(t, sum(values(t, c, names[1])))
	}
}

// TestTheDriverIsLateWhileNoLoopIsBehind relies on system timers, which are always late by some
// microseconds.
func TestTheDriverIsLateWhileNoLoopIsBehind(t *testing.T) {
	h, addr := serve(t, idle.Config{ReadTimeout: time.Minute, Tick: 10 * time.Millisecond})
	dial(t, addr, "x")
	require.Eventually(t, func() bool { return h.reaper.Stats().ClockDelay > 0 }, 20*time.Second, time.Millisecond)
	c := metrics.NewCollector(h.reaper)
	least := h.reaper.Stats().ClockDelay.Seconds()
	got := values(t, c, "idlewheel_clock_delay_seconds")[""]
	most := h.reaper.Stats().ClockDelay.Seconds()
	require.GreaterOrEqual(t, got, least)
	require.LessOrEqual(t, got, most)
	require.Zero(t, values(t, c, "idlewheel_loop_delay_seconds")[""], "no connection is due")
}

// TestAnOutageIsCountedAndAHoldIsShown silences all busy connections at once, and then lets one of
// them send again.
func TestAnOutageIsCountedAndAHoldIsShown(t *testing.T) {
	fair.TryParallel(t, testAnOutageIsCounted)
}

func testAnOutageIsCounted(t testing.TB) {
	h, addr := serve(t, idle.Config{ReadTimeout: 2 * time.Second, Tick: 50 * time.Millisecond})
	c := metrics.NewCollector(h.reaper)
	value := func(name string) float64 { return values(t, c, name)[""] }
	require.Zero(t, value("idlewheel_suspensions_total"))
	require.Zero(t, value("idlewheel_verdicts_suspended"))

	var conns []net.Conn
	for range 40 {
		conns = append(conns, dial(t, addr, "x"))
	}
	stop := testpeer.KeepSending(t, conns)
	time.Sleep(time.Second)
	stop()
	require.Eventually(t, func() bool { return value("idlewheel_suspensions_total") == 1 }, 4*time.Second, 10*time.Millisecond)
	require.EqualValues(t, 1, value("idlewheel_verdicts_suspended"))
	time.Sleep(2 * time.Second)
	require.Zero(t, sum(values(t, c, "idlewheel_connections_closed_total")), "all deadlines have passed")

	outages, length := value("idlewheel_outages_total"), value("idlewheel_outage_seconds_total")
	_, err := conns[0].Write([]byte("x"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return value("idlewheel_verdicts_suspended") == 0 }, 2*time.Second, 10*time.Millisecond)
	require.Greater(t, value("idlewheel_outages_total"), outages)
	require.Greater(t, value("idlewheel_outage_seconds_total"), length+2)
	require.Eventually(t, func() bool { return value("idlewheel_verdicts_postponed_total") > 0 }, 10*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { // the Reaper may change between Stats and the scrape
		s := h.reaper.Stats()
		return value("idlewheel_outages_total") == float64(s.Outages) && value("idlewheel_suspensions_total") == float64(s.Suspensions) &&
			value("idlewheel_outage_seconds_total") == s.OutageTime.Seconds() &&
			value("idlewheel_verdicts_postponed_total") == float64(s.Postponed)
	}, 10*time.Second, 10*time.Millisecond)
}
