package server

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/admin"
)

// values returns the values of the metrics of a server. The keys are names without idlewheel_, and
// labels: "draining" and "pressure_ratio heap".
func values(t testing.TB, s *Server) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(s.Collector()))
	require.Error(t, reg.Register(s.Collector()), "it describes its metrics")
	families, err := reg.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			words := []string{family.GetName()[len("idlewheel_"):]}
			for _, l := range m.GetLabel() {
				words = append(words, l.GetValue())
			}
			// A metric has one of the two.
			all[strings.Join(words, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return all
}

// TestEachMetricOfAServerHasItsOwnValue also has promlint check the metrics.
func TestEachMetricOfAServerHasItsOwnValue(t *testing.T) {
	s := newServer(t, Config{})
	problems, err := testutil.CollectAndLint(s.Collector())
	require.NoError(t, err)
	require.Empty(t, problems)
	s.setup.Store(&setup{budget: budget{allowed: 12_345}})
	s.admission.bySource.Store(3)
	s.admission.byRate.Store(4)
	s.pauses.count.Store(7)
	want := map[string]float64{
		"connections_rejected_total source": 3, "connections_rejected_total accept_rate": 4,
		"connections_rejected_total max_connections": 0, "accept_pauses_total": 7, "max_descriptors": 12_345,
		"accept_paused": 0, "draining": 0, "pressure_ratio descriptors": 0,
	}
	require.Subset(t, values(t, s), want)

	log := slog.New(slog.DiscardHandler)
	s.setup.Store(&setup{budget: budget{allowed: 1 << 20, inUse: 1 << 19}})
	a := newAcceptors(&s.cfg, s.setup.Load(), s.reaper, s.admission, &s.pauses)
	s.acceptors.Store(a)
	s.pauses.begin(log, "the test asks for it")
	got := values(t, s)
	require.Subset(t, got, map[string]float64{"accept_paused": 1, "draining": 0, "pressure_ratio connections": 0, "pressure_ratio heap": 0, "pressure_ratio memory": 0})
	require.InDelta(t, 0.5, got["pressure_ratio descriptors"], 0.01)
	s.pauses.end(log, true)
	a.stop(true)
	require.Subset(t, values(t, s), map[string]float64{"accept_paused": 0, "draining": 1})
}

func TestTheStateOfAServer(t *testing.T) {
	s := newServer(t, Config{})
	paused := Stats{Paused: true}
	require.Equal(t, admin.Starting, s.adminState(Stats{}), "no event loops run yet")
	s.acceptors.Store(newAcceptors(&s.cfg, s.setup.Load(), s.reaper, s.admission, &s.pauses))
	require.Equal(t, admin.Ready, s.adminState(Stats{}))
	require.Equal(t, admin.Paused, s.adminState(paused))
	require.NoError(t, s.reaper.Drain(0, 0))
	require.Equal(t, admin.Draining, s.status().State, "new connections are refused")
	for _, a := range []*acceptors{nil, {}} {
		s.acceptors.Store(a)
		s.stop(nil)
		require.Equal(t, admin.Draining, s.adminState(paused), "the server is to stop, with or without an engine")
	}
}

func TestDescriptorsAreKeptForAdmin(t *testing.T) {
	for _, b := range []budget{{allowed: 1000, loops: 2, listeners: 1}, {allowed: 6000, loops: 4, inUse: 10}} {
		with := b
		with.admin = 65
		require.Equal(t, b.full()-65, with.full(), "accepting is paused earlier")
		n, err := b.connections()
		require.NoError(t, err)
		less, err := with.connections()
		require.NoError(t, err)
		require.Equal(t, n-65, less, "there is room for fewer connections")
	}
}
