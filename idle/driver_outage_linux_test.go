package idle

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
)

// outageConfig is the Config of servers in an outage.
var outageConfig = Config{ReadTimeout: 5 * time.Second}

const (
	outageClients  = 300
	outageInterval = 1600 * time.Millisecond
	outageLength   = 5 * outageInterval // 8 s
)

func init() { plays["outage"] = play{cfg: outageConfig} }

// addressOf returns the address of a client of a fleet, as the server sees it.
func (f *fleet) addressOf(i int) string {
	sa, err := unix.Getsockname(f.conns[i].fd)
	require.NoError(f.t, err)
	in := sa.(*unix.SockaddrInet4)
	return net.JoinHostPort(net.IP(in.Addr[:]).String(), fmt.Sprint(in.Port))
}

// isHeard reports whether the server's kernel has acknowledged all bytes of a client.
func (f *fleet) isHeard(i int) bool {
	waiting, err := unix.IoctlGetInt(f.conns[i].fd, unix.TIOCOUTQ)
	require.NoError(f.t, err)
	return waiting == 0
}

// sendEvenly sends once from each client, evenly spread over a period. This spreads retransmissions
// as well.
func (f *fleet) sendEvenly(period time.Duration) {
	const parts = 50
	began, n := time.Now(), len(f.conns)
	for p := range parts {
		f.send(n*p/parts, n*(p+1)/parts, "beat")
		time.Sleep(time.Until(began.Add(period * time.Duration(p+1) / parts)))
	}
}

// sendUntilHeard sends heartbeats until each client was heard or lost its connection. It returns
// the instant of monotonic at which each was first heard, 0 if it was not.
func (f *fleet) sendUntilHeard(period time.Duration) []int64 {
	f.t.Helper()
	heard := make([]int64, len(f.conns))
	poll := func() (missing int) {
		for i := range heard {
			switch {
			case heard[i] != 0 || f.conns[i].closedAt.Load() != 0:
			case f.isHeard(i):
				heard[i] = monotonic()
			default:
				missing++
			}
		}
		return missing
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	over := make(chan struct{})
	defer close(over)
	sending.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				f.sendEvenly(period)
			}
		}
	})
	eventually(f.t, "all clients are heard again", func() bool { return poll() == 0 })
	return heard
}

// sentAt returns when a client has sent its last byte, as an instant of monotonic.
func (f *fleet) sentAt(i int) int64 {
	return monotonic() - f.now() + f.conns[i].sentFrom.Load()
}

// TestAnOutageClosesNoLivingClient cuts living clients off from the server for longer than the
// timeout. The server's process is stopped, as by a debugger or a full disk; or it is stopped and
// packets are lost, as when a machine is paused; or packets are lost, as when a network fails. No
// client may be closed before all were heard again. Afterwards silent clients are closed as before.
func TestAnOutageClosesNoLivingClient(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		stopped, lost bool
	}{
		{"process stopped", true, false},
		{"process stopped and packets lost", true, true},
		{"packets lost", false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fair.TryParallel(t, func(t testing.TB) {
				const n = outageClients
				wire := faultynet.New(t)
				server := startPlay(t, "outage", "tcp://"+wire.Host()+":0")
				f := fleetOf(t, wire, faultynet.PortOf(server.addr), n)
				for range 2 {
					f.sendEvenly(outageInterval)
				}
				require.Zero(t, server.account().closed(), "before the outage")

				mend := func() {}
				if tc.lost {
					mend = wire.Lose(t, faultynet.ToServer, faultynet.ToClient)
				}
				if tc.stopped {
					server.pause()
				}
				began := time.Now()
				for time.Since(began) < outageLength {
					f.sendEvenly(outageInterval)
				}
				mend()
				if tc.stopped {
					server.resume(0)
				}
				ended := monotonic()
				t.Logf("outage of %v", time.Since(began))

				heard := f.sendUntilHeard(outageInterval)
				var after, closed []time.Duration
				for _, at := range heard {
					if at != 0 {
						after = append(after, time.Duration(at-ended))
					}
				}
				a := server.account()
				for _, tr := range a.Traces {
					if tr.Closed != 0 {
						closed = append(closed, time.Duration(tr.Closed-ended))
					}
				}
				t.Logf("%d clients heard again after the outage: first %v, p50 %v, all %v", len(after), part(after, 0), part(after, 0.5), part(after, 1))
				t.Logf("%d of %d closed, the first %v after the outage, the last %v; %d saved by the kernel",
					len(closed), n, part(closed, 0), part(closed, 1), a.Stats.SavedByKernel)
				require.Len(t, a.Traces, n)
				assert.Zero(t, len(closed), "living clients were closed")

				// Dead and living connections are still told apart.
				a = server.await("silent clients are closed", func(a account) bool { return a.closed() == n })
				by := a.by()
				var silences []time.Duration
				for i := range n {
					tr := by[f.addressOf(i)]
					assert.Equal(t, "read idle", tr.Reason, tr.Message)
					if heard[i] != 0 {
						silences = append(silences, time.Duration(tr.Closed-f.sentAt(i)))
					}
				}
				t.Logf("then silent, closed after p50 %v, all %v", part(silences, 0.5), part(silences, 1))
				if len(closed) == 0 {
					shortest, _ := f.silences(0, n)
					assert.GreaterOrEqual(t, shortest, outageConfig.ReadTimeout, "never early")
				}
				server.end()
			})
		})
	}
}

// TestTheDeadAreFoundAmongTheLivingAndAllAtOnce lets the network of some clients fail for good,
// with and without other clients on a network that works.
func TestTheDeadAreFoundAmongTheLivingAndAllAtOnce(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		living int
	}{
		{"among as many living", outageClients},
		{"all at once", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fair.TryParallel(t, func(t testing.TB) {
				const n = outageClients
				promised := 2 * outageConfig.ReadTimeout
				server := startPlay(t, "outage", "tcp://0.0.0.0:0")
				port := faultynet.PortOf(server.addr)
				wire := faultynet.New(t)
				dead := fleetOf(t, wire, port, n)

				over := make(chan struct{})
				var sending sync.WaitGroup
				var living *fleet
				if tc.living > 0 {
					living = fleetOf(t, faultynet.New(t), port, tc.living)
					sending.Go(func() {
						for {
							select {
							case <-over:
								return
							default:
								living.sendHeartbeats(0, tc.living, outageInterval, outageInterval)
							}
						}
					})
				}
				defer sending.Wait()
				stop := sync.OnceFunc(func() { close(over) })
				defer stop()
				dead.sendHeartbeats(0, n, outageInterval, 2*outageInterval)
				require.Zero(t, server.account().closed(), "all clients are alive")
				wire.Lose(t, faultynet.ToServer, faultynet.ToClient)
				died := monotonic()

				a := server.await("the dead connections are closed", func(a account) bool { return a.closed() >= n })
				by := a.by()
				var silences []time.Duration
				for i := range n {
					tr := by[dead.addressOf(i)]
					assert.Equal(t, "read idle", tr.Reason, tr.Message)
					assert.GreaterOrEqual(t, time.Duration(tr.Closed-dead.sentAt(i)), outageConfig.ReadTimeout-time.Millisecond, "never early")
					// Verdicts are held until two timeouts after the last byte of any of them.
					silences = append(silences, time.Duration(tr.Closed-died))
				}
				t.Logf("closed after the clients died: first %v, p50 %v, p90 %v, p99 %v, last %v; promised is %v to %v",
					part(silences, 0), part(silences, 0.5), part(silences, 0.9), part(silences, 0.99), part(silences, 1),
					outageConfig.ReadTimeout, promised)
				assert.LessOrEqual(t, part(silences, 0.5), promised, "closed in time, apart from delays of the machine")
				assert.LessOrEqual(t, part(silences, 1), promised+room, "no dead connection is left for long")
				if living != nil {
					stop()
					sending.Wait()
					assert.Zero(t, living.lost(0, tc.living), "no living connection is closed")
				}
			})
		})
	}
}

// fleetOf opens n connections from the far end of a cable.
func fleetOf(t testing.TB, wire *faultynet.Cable, port, n int) (f *fleet) {
	t.Helper()
	wire.Inside(t, func() { f = dialFleet(t, &net.TCPAddr{IP: net.ParseIP(wire.Host()), Port: port}, n) })
	return f
}
