package metrics_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/testpeer"
	"github.com/idlewheel/idlewheel/metrics"
)

// TestAnOutageIsCountedAndAHoldIsShown silences all busy connections at once, and then lets one of
// them send again.
func TestAnOutageIsCountedAndAHoldIsShown(t *testing.T) {
	h, addr := serve(t, idle.Config{ReadTimeout: 2 * time.Second, Tick: 50 * time.Millisecond})
	c := metrics.NewCollector(h.reaper)
	value := func(name string) float64 { return values(t, c, name)[""] }
	require.Zero(t, value("idlewheel_holds_total"))
	require.Zero(t, value("idlewheel_holding"))

	var conns []net.Conn
	for range 40 {
		conns = append(conns, dial(t, addr, "x"))
	}
	stop := testpeer.KeepSending(t, conns)
	time.Sleep(time.Second)
	stop()
	require.Eventually(t, func() bool { return value("idlewheel_holds_total") == 1 }, 4*time.Second, 10*time.Millisecond)
	require.EqualValues(t, 1, value("idlewheel_holding"))
	time.Sleep(2 * time.Second)
	require.Zero(t, sum(values(t, c, "idlewheel_connections_closed_total")), "all deadlines have passed")

	outages, length := value("idlewheel_outages_total"), value("idlewheel_outage_seconds_total")
	_, err := conns[0].Write([]byte("x"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return value("idlewheel_holding") == 0 }, 2*time.Second, 10*time.Millisecond)
	require.Greater(t, value("idlewheel_outages_total"), outages)
	require.Greater(t, value("idlewheel_outage_seconds_total"), length+2)
	require.Eventually(t, func() bool { return value("idlewheel_verdicts_put_off_total") > 0 }, 10*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { // the Reaper may change between Stats and the scrape
		s := h.reaper.Stats()
		return value("idlewheel_outages_total") == float64(s.Outages) && value("idlewheel_holds_total") == float64(s.Holds) &&
			value("idlewheel_outage_seconds_total") == s.OutageTime.Seconds() &&
			value("idlewheel_verdicts_put_off_total") == float64(s.PutOff)
	}, 10*time.Second, 10*time.Millisecond)
}
