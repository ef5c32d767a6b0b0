package server

import (
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/testing/prober"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/reap"
)

// requireAllServed ends a prober. No probe may have failed.
func requireAllServed(t testing.TB, probing *prober.Prober) {
	t.Helper()
	probes := probing.End()
	t.Log(probes)
	require.NotEmpty(t, probes)
	require.Zero(t, probes.Failed())
	if !needs.RaceDetector { // which takes most of the CPU
		require.Less(t, probes.Quantile(0.99), 2*time.Second)
	}
}

// TestChurnLeavesNothingBehind opens and closes connections as fast as it can for some seconds,
// half of them with a reset.
func TestChurnLeavesNothingBehind(t *testing.T) {
	fair.Try(t, func(t testing.TB) {
		length := 2 * time.Second
		if d, err := time.ParseDuration(os.Getenv("IDLEWHEEL_CHURN")); err == nil {
			length = d
		}
		srv, stop := startIn(t, Config{
			NumEventLoop: 2, Sources: SourceLimits{Connections: 1000, Rate: 1 << 20, Entries: 1024},
			Idle: idle.Config{ReadTimeout: time.Minute, HandshakeTimeout: time.Minute, MaxAge: time.Hour},
		})
		defer stop()
		var opened, failed atomic.Int64
		churn := func(length time.Duration) {
			var churning sync.WaitGroup
			until := time.Now().Add(length)
			for g := range 4 {
				churning.Go(func() {
					to := &unix.SockaddrInet4{Port: srv.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
					for n := 0; time.Now().Before(until); n++ {
						fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
						if !assert.NoError(t, err) {
							return
						}
						_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
						_ = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, byte(g + 1), byte(n >> 8), byte(n)}})
						if unix.Connect(fd, to) == nil {
							opened.Add(1)
						} else {
							failed.Add(1)
						}
						if n%2 == 0 {
							_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
						}
						_ = unix.Close(fd)
					}
				})
			}
			churning.Wait()
			require.Eventually(t, func() bool { return srv.Reaper().Connections() == 0 }, time.Minute, 10*time.Millisecond)
		}
		heap := func() (n uint64) {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		churn(length / 5) // to begin with
		probing := prober.Start(t, srv.Addr().String())
		descriptors := descriptorsInUse()
		goroutines, memory := runtime.NumGoroutine(), heap()
		churn(length)
		requireAllServed(t, probing)
		t.Logf("%d connections, %.0f a second, %d failed; heap %d before and %d after", opened.Load(),
			float64(opened.Load())/length.Seconds()/1.2, failed.Load(), memory, heap())
		require.LessOrEqual(t, descriptorsInUse(), descriptors+2)
		require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+2)
		require.LessOrEqual(t, heap(), memory+4<<20)
		stats := srv.Reaper().Stats()
		require.Equal(t, stats.Opened, stats.Closed)
		require.Zero(t, stats.Connections)
		require.Zero(t, stats.Reaped.Total())
	})
}

// TestAFullServerAcceptsNewClients fills a server with idle connections and some active ones. New
// clients are served, and only idle connections are closed for them.
func TestAFullServerAcceptsNewClients(t *testing.T) {
	fair.Try(t, func(t testing.TB) {
		needs.Descriptors(t, 6000) // both ends
		const limit, active, newcomers = 1000, 100, 1000
		srv, stop := startIn(t, Config{
			NumEventLoop: 2, Idle: idle.Config{ReadTimeout: time.Hour, ShedProtect: 500 * time.Millisecond, MaxConnections: limit},
		})
		dial := func() net.Conn {
			c, err := net.DialTimeout("tcp", srv.Addr().String(), 5*time.Second)
			require.NoError(t, err)
			t.Cleanup(func() { c.Close() })
			return c
		}
		var over atomic.Bool
		var playing sync.WaitGroup
		defer playing.Wait()
		defer over.Store(true)
		for range active {
			c := dial()
			playing.Go(func() {
				for !over.Load() {
					if !assert.NoError(t, pingPong(c, 20*time.Second), "an active connection is lost") {
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		for range limit - limit/16 - active {
			dial()
		}
		time.Sleep(600 * time.Millisecond) // they are idle
		probing := prober.Start(t, srv.Addr().String())
		began := time.Now()
		for n := range newcomers { // 500 a second
			require.NoError(t, pingPong(dial(), 5*time.Second), "client %d", n)
			time.Sleep(time.Until(began.Add(time.Duration(n) * 2 * time.Millisecond)))
		}
		requireAllServed(t, probing)
		over.Store(true)
		playing.Wait()
		stats := srv.Reaper().Stats()
		t.Logf("%d were shed for %d new clients, %d rejected, accepting paused %d times",
			stats.Reaped[reap.Shed], newcomers, srv.Stats().Rejected.Total(), srv.Stats().Pauses)
		require.Equal(t, stats.Reaped.Total(), stats.Reaped[reap.Shed])
		require.GreaterOrEqual(t, int(stats.Reaped[reap.Shed]), newcomers-limit/16)
		require.Zero(t, srv.Stats().Rejected)
		stop()
	})
}

// TestBlastingConnectionsDoNotStarveOthers has four connections that send as fast as they can,
// and 1,000 with heartbeats.
func TestBlastingConnectionsDoNotStarveOthers(t *testing.T) {
	fair.Try(t, func(t testing.TB) {
		others := needs.Connections(t, 1000, 100, 2)
		timeout := 2 * time.Second
		if needs.RaceDetector { // to dial all connections takes a second
			timeout = 4 * time.Second
		}
		srv, stop := startIn(t, Config{
			NumEventLoop: 2, Idle: idle.Config{ReadTimeout: timeout, AllTimeout: timeout, WriteStallTimeout: 4 * timeout},
		})
		var over atomic.Bool
		var running sync.WaitGroup
		t.Cleanup(running.Wait) // after the closes
		for range 4 {
			c := dial(t, srv.Addr())
			running.Go(func() {
				b := make([]byte, 1<<16)
				for !over.Load() {
					if _, err := c.Write(b); err != nil {
						assert.True(t, over.Load(), "%v", err)
						return
					}
				}
			})
			running.Go(func() { _, _ = io.Copy(io.Discard, c) })
		}
		var conns []net.Conn
		for range others {
			conns = append(conns, dial(t, srv.Addr()))
		}
		probing := prober.Start(t, srv.Addr().String())
		for until := time.Now().Add(timeout * 3 / 2); time.Now().Before(until); {
			began := time.Now()
			for _, c := range conns {
				_, err := c.Write([]byte("beat"))
				require.NoError(t, err)
			}
			time.Sleep(time.Until(began.Add(timeout / 3)))
		}
		requireAllServed(t, probing)
		require.Zero(t, srv.Reaper().Stats().Reaped.Total(), "%+v", srv.Reaper().Stats())
		require.Eventually(t, func() bool { return srv.Reaper().Connections() == others+4 }, time.Minute, time.Millisecond,
			"a probe may still be open")
		over.Store(true)
		stop()
		running.Wait()
	})
}

// TestThePortIsFreeAfterAKill starts a server on the port of a server that was killed with open
// connections.
func TestThePortIsFreeAfterAKill(t *testing.T) {
	server := startFlooded(t, flooded{Descriptors: 1000, MaxConnections: 100})
	for range 10 {
		require.NoError(t, pingPong(sockets.Dial(t, "tcp", server.addr), 5*time.Second))
	}
	require.NoError(t, server.cmd.Process.Signal(syscall.SIGKILL))
	_ = server.cmd.Wait()
	_, stop := startIn(t, Config{Addresses: []string{server.addr}})
	stop()
}
