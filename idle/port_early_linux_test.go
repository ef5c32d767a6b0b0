package idle

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
)

const lossyTimeout = time.Second

func init() { plays["lossy"] = play{cfg: Config{ReadTimeout: lossyTimeout}} }

// TestALossyNetworkClosesNoHeardClient loses three of ten packets. Often a client cannot be read,
// because a segment is lost again and again, but a later one arrives. Each close must come a
// timeout after the last segment with bytes, unless one arrives between the verdict and the close.
func TestALossyNetworkClosesNoHeardClient(t *testing.T) {
	t.Parallel()
	needs.Descriptors(t, 350)
	fair.Try(t, func(t testing.TB) {
		const living, all = 300, 320
		wire := faultynet.New(t)
		server := startPlay(t, "lossy", "tcp://"+wire.Host()+":0")
		f := fleetOf(t, wire, faultynet.PortOf(server.addr), all)
		heard := listenTo(t, f, wire)
		b := f.beat(living, rand.New(rand.NewPCG(1, 0)), lossyTimeout/6, lossyTimeout/5)
		mend := wire.LoseIf(t, "numgen random mod 10 < 3", faultynet.ToServer)
		time.Sleep(8 * lossyTimeout)
		mend()
		b.end()
		last, cut := heard(), 0
		const closing, late = int64(20 * time.Millisecond), 50 * time.Millisecond // of the witness
		for i := range f.conns {
			c := &f.conns[i]
			if closed := c.closedAt.Load(); closed != 0 {
				cut++
				silence := time.Duration(closed - last(i, closed-closing))
				assert.GreaterOrEqual(t, silence, lossyTimeout-late, "client %d", i)
			}
		}
		t.Logf("%d of %d clients were closed", cut, all)
		assert.GreaterOrEqual(t, cut, all-living)
		server.end()
	})
}

// listenTo records when segments with bytes of the clients arrive at the near end of a cable. The
// result ends that, and returns a function that returns the last such time of a client up to
// another.
func listenTo(t testing.TB, f *fleet, wire *faultynet.Cable) (end func() func(i int, until int64) int64) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	near, err := net.InterfaceByName(wire.Near())
	require.NoError(t, err)
	// A socket for one protocol does not get what nft drops at the ingress.
	const ip = unix.ETH_P_IP>>8 | unix.ETH_P_IP&255<<8
	require.NoError(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: ip, Ifindex: near.Index}))
	arrived := map[uint16][]int64{} // by port
	over := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer unix.Close(fd)
		for packet := make([]byte, 2048); ; {
			n, _, _ := unix.Recvfrom(fd, packet, 0)
			select {
			case <-over:
				return
			default:
			}
			if n < 40 || packet[9] != unix.IPPROTO_TCP {
				continue
			}
			tcp := packet[int(packet[0]&15)*4 : binary.BigEndian.Uint16(packet[2:])]
			if len(tcp) > int(tcp[12]>>4)*4 {
				port := binary.BigEndian.Uint16(tcp)
				arrived[port] = append(arrived[port], f.now())
			}
		}
	})
	return func() func(int, int64) int64 {
		close(over)
		reading.Wait()
		return func(i int, until int64) (last int64) {
			name, err := unix.Getsockname(f.conns[i].fd)
			require.NoError(t, err)
			for _, at := range arrived[uint16(name.(*unix.SockaddrInet4).Port)] {
				if at < until {
					last = max(last, at)
				}
			}
			return last
		}
	}
}
