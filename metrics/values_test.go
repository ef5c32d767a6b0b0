package metrics_test

import (
	"net"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/metrics"
	"github.com/idlewheel/idlewheel/reap"
)

// values returns the values of a metric by its label. Without a label, the key is empty.
func values(t *testing.T, c prometheus.Collector, name string) map[string]float64 {
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

func TestObservedConnectionsAreNotCountedAsClosed(t *testing.T) {
	h, addr := serve(t, idle.Config{ReadTimeout: 100 * time.Millisecond, Tick: 10 * time.Millisecond, ObserveOnly: true})
	dial(t, addr, "x")
	require.Eventually(t, func() bool { return h.reaper.Stats().Observed[reap.ReadIdle] == 1 }, 20*time.Second, time.Millisecond)
	c := metrics.NewCollector(h.reaper)
	observed := values(t, c, "idlewheel_connections_observed_total")
	require.EqualValues(t, 1, observed["read_idle"])
	require.EqualValues(t, 1, sum(observed), "%v", observed)
	require.Zero(t, sum(values(t, c, "idlewheel_connections_closed_total")))
}

func TestReapedConnectionsAreNotCountedAsObserved(t *testing.T) {
	h, addr := serve(t, idle.Config{ReadTimeout: 100 * time.Millisecond, Tick: 10 * time.Millisecond})
	dial(t, addr, "x")
	require.Eventually(t, func() bool { return h.reaper.Stats().Reaped[reap.ReadIdle] == 1 }, 20*time.Second, time.Millisecond)
	c := metrics.NewCollector(h.reaper)
	closed := values(t, c, "idlewheel_connections_closed_total")
	require.EqualValues(t, 1, closed["read_idle"])
	require.EqualValues(t, 1, sum(closed), "%v", closed)
	require.Zero(t, sum(values(t, c, "idlewheel_connections_observed_total")))
}

// TestTheDriverIsLateWhileNoLoopIsBehind relies on system timers, which are always late by some
// microseconds.
func TestTheDriverIsLateWhileNoLoopIsBehind(t *testing.T) {
	h, addr := serve(t, idle.Config{ReadTimeout: time.Minute, Tick: 10 * time.Millisecond})
	dial(t, addr, "x")
	require.Eventually(t, func() bool { return h.reaper.Stats().DriverLag > 0 }, 20*time.Second, time.Millisecond)
	c := metrics.NewCollector(h.reaper)
	least := h.reaper.Stats().DriverLag.Seconds()
	got := values(t, c, "idlewheel_driver_lag_seconds")[""]
	most := h.reaper.Stats().DriverLag.Seconds()
	require.GreaterOrEqual(t, got, least)
	require.LessOrEqual(t, got, most)
	require.Zero(t, values(t, c, "idlewheel_wheel_behind_seconds")[""], "no connection is due")
}
