package server

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/admin"
	"github.com/idlewheel/idlewheel/idle"
)

// values returns those of the metrics of a server by their names, without idlewheel_, and their labels, such as draining and
// pressure_ratio heap.
func values(t *testing.T, s *Server) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(s.Collector()))
	families, err := reg.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			words := []string{family.GetName()[len("idlewheel_"):]}
			for _, l := range m.GetLabel() {
				words = append(words, l.GetValue())
			}
			all[strings.Join(words, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue() // it has one of them
		}
	}
	return all
}

// newIdleServer returns one of which no engine runs.
func newIdleServer(t *testing.T) *Server {
	t.Helper()
	r, err := idle.Middleware(&echo{}, idleConfig)
	require.NoError(t, err)
	return &Server{reaper: r, door: &door{}}
}

func TestEachMetricOfAServerHasItsOwnValue(t *testing.T) {
	s := newIdleServer(t)
	s.budget.allowed = 12_345
	s.door.rejected[tooManyOfSource].Store(3)
	s.door.rejected[acceptRate].Store(4)
	s.door.rejected[noDescriptors].Store(5)
	s.restarts.Store(6)
	s.pauses.Store(7)
	want := map[string]float64{
		"connections_rejected_total source": 3, "connections_rejected_total accept_rate": 4, "connections_rejected_total no_descriptors": 5,
		"connections_rejected_total max_connections": 0, "engine_restarts_total": 6, "accept_pauses_total": 7, "max_descriptors": 12_345,
		"accept_paused": 0, "draining": 0, "pressure_ratio descriptors": 0,
	}
	require.Subset(t, values(t, s), want)

	h := &host{Reaper: s.reaper, gate: &gate{}, full: 1 << 20, taken: 1 << 19}
	s.host.Store(h)
	h.gate.closed.Store(true)
	got := values(t, s)
	require.Subset(t, got, map[string]float64{"accept_paused": 1, "draining": 0, "pressure_ratio connections": 0, "pressure_ratio heap": 0})
	require.InDelta(t, 0.5, got["pressure_ratio descriptors"], 0.01)
	h.gate.closed.Store(false)
	h.draining.Store(true)
	require.Subset(t, values(t, s), map[string]float64{"accept_paused": 0, "draining": 1})
}

func TestOpenDescriptorsFollowThoseOfTheProcess(t *testing.T) {
	const more = 100
	s := newIdleServer(t)
	s.budget.allowed = 12_345
	before := values(t, s)["open_descriptors"]
	require.Positive(t, before)
	for range more {
		f, err := os.Open(os.DevNull)
		require.NoError(t, err)
		defer f.Close()
	}
	require.InDelta(t, before+more, values(t, s)["open_descriptors"], more/4, "others may come and go")
}

func TestADrainIsInTheMetrics(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started, now, done := make(chan *Server, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{
			Addr: "127.0.0.1:0", Handler: &echo{}, Idle: idle.Config{ReadTimeout: time.Hour}, Drain: Drain{Spread: time.Hour}, StopNow: now,
			Started: func(s *Server) { started <- s },
		})
	}()
	srv := <-started
	c, err := net.Dial("tcp", srv.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, pingPong(c, 10*time.Second))
	require.Zero(t, values(t, srv)["draining"])
	cancel()
	require.Eventually(t, func() bool { return srv.Stats().Draining }, 10*time.Second, time.Millisecond)
	require.Equal(t, 1.0, values(t, srv)["draining"])
	close(now)
	require.NoError(t, await(t, done))
	require.Zero(t, values(t, srv)["draining"], "it is over")
}

func TestTheStateOfAServer(t *testing.T) {
	var s Server
	paused := Stats{Paused: true}
	require.Equal(t, admin.Starting, s.state(Stats{}), "no engine runs yet")
	s.host.Store(&host{})
	require.Equal(t, admin.Ready, s.state(Stats{}))
	require.Equal(t, admin.Paused, s.state(paused))
	s.host.Store(nil)
	require.Equal(t, admin.Starting, s.state(Stats{}), "it has died, and is to be started again")
	for _, h := range []*host{nil, {}} {
		s.host.Store(h)
		s.told.Store(true)
		require.Equal(t, admin.Draining, s.state(paused), "it is to stop, whatever else is true")
	}
}

func TestDescriptorsAreKeptForAdmin(t *testing.T) {
	for _, b := range []budget{{allowed: 1000, loops: 2}, {allowed: 6000, loops: 4, inUse: 10, backlog: 4096}} {
		with := b
		with.admin = 65
		require.Equal(t, b.full()-65, with.full(), "accepting is paused earlier")
		n, _, err := b.connections()
		require.NoError(t, err)
		less, _, err := with.connections()
		require.NoError(t, err)
		require.Equal(t, n-65, less, "there is room for fewer connections")
	}
	require.Zero(t, budget{admin: 65}.full(), "it is not known")
}

func TestAdminOfAllAddressesOfIPv4IsNotOfIPv6(t *testing.T) {
	srv, stop := startIn(t, Config{Addr: "127.0.0.1:0", Handler: &echo{}, Idle: idleConfig, Admin: Admin{Addr: "0.0.0.0:0", Token: testToken}})
	defer stop()
	require.Equal(t, adminConns+1, srv.budget.admin)
	addr := srv.AdminAddr().(*net.TCPAddr)
	require.True(t, addr.IP.Equal(net.IPv4zero), "%v", addr)
	dial := func(host string) error {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(addr.Port)), 5*time.Second)
		if err == nil {
			c.Close()
		}
		return err
	}
	require.NoError(t, dial("127.0.0.1"))
	require.Error(t, dial("::1"))
}
