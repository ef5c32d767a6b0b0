package idle

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/internal/testing/testpeer"
	"github.com/idlewheel/idlewheel/reap"
)

func TestMaxAgeSaysGoodbyeAndGivesAGrace(t *testing.T) {
	t.Parallel()
	cfg := Config{MaxAge: 2 * limitOf, MaxAgeGrace: limitOf, ReconnectSpread: time.Hour, Goodbye: func(_ gnet.Conn, reason *ReapError) []byte {
		return fmt.Appendf(nil, "bye: %v, in %v", reason.Reason, reason.Grace)
	}}
	s := newSite(t, cfg, nil)
	began := time.Now()
	c := dial(t, s.addr)
	sendEvery(t, c, limitOf/8) // activity does not put off the maximum age
	b := make([]byte, 64)
	n, err := c.Read(b)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint("bye: max age, in ", limitOf), string(b[:n]))
	require.GreaterOrEqual(t, time.Since(began), 2*limitOf*9/10)
	rest, _ := io.ReadAll(c)
	require.Empty(t, rest, "the goodbye is sent once")
	reason := s.requireReaped(t, began, 2*limitOf*9/10+limitOf, reap.MaxAge)
	require.Zero(t, reason.Reconnect, "only a drain suggests when to reconnect")
}

// TestADrainSpreadsReconnects drains connections. Their goodbyes suggest times over the spread.
func TestADrainSpreadsReconnects(t *testing.T) {
	t.Parallel()
	const clients, spread = 64, time.Hour
	var after [4]atomic.Int64 // clients by quarter of the spread
	s := newSite(t, Config{ReadTimeout: time.Hour, ReconnectSpread: spread, Goodbye: func(_ gnet.Conn, reason *ReapError) []byte {
		if reason.Reason == reap.Drained && reason.Grace == 0 {
			after[4*reason.Reconnect/spread].Add(1)
		}
		return nil
	}}, nil)
	for range clients {
		dial(t, s.addr)
	}
	eventually(t, "all are open", func() bool { return s.reaper.Connections() == clients })
	require.NoError(t, s.reaper.Drain(0, limitOf))
	eventually(t, "all are drained", func() bool { return s.reaper.Stats().Reaped[reap.Drained] == clients })
	for quarter := range after {
		require.NotZero(t, after[quarter].Load(), "quarter %d", quarter)
	}
}

func TestObserveOnlyClosesNothing(t *testing.T) {
	t.Parallel()
	var log syncbuf.Buffer
	s := newSite(t, Config{
		ReadTimeout: limitOf, FirstByteTimeout: 2 * limitOf, ObserveOnly: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Goodbye: func(gnet.Conn, *ReapError) []byte { return []byte("bye") },
	}, nil)
	c := dial(t, s.addr)
	eventually(t, "the verdict is counted", func() bool { return s.reaper.Stats().Observed[reap.ReadIdle] == 1 })
	time.Sleep(3 * limitOf)
	require.Empty(t, s.reasons())
	stats := s.reaper.Stats()
	require.EqualValues(t, 1, stats.Observed.Total(), "one verdict per connection")
	require.Zero(t, stats.Reaped.Total())
	flushLog(s.reaper)
	require.Equal(t, 1, strings.Count(log.String(), "would reap connection"))
	require.Contains(t, log.String(), `reason="read idle"`)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(limitOf/4)))
	_, err := c.Read(make([]byte, 8))
	require.ErrorContains(t, err, "timeout", "no goodbye is sent")
}

func TestGoodbyeOrReset(t *testing.T) {
	t.Parallel()
	bye := func(_ gnet.Conn, reason *ReapError) []byte { return []byte(reason.Error()) }
	s := newSite(t, Config{ReadTimeout: limitOf, OutageGrace: -1, Goodbye: bye}, nil)
	got, err := io.ReadAll(dial(t, s.addr))
	require.NoError(t, err, "the stream ends without a reset")
	require.Contains(t, string(got), "read idle for")

	s = newSite(t, Config{ReadTimeout: limitOf, OutageGrace: -1, Goodbye: bye, Reset: []Reason{reap.ReadIdle}}, nil)
	requireReset(t, dial(t, s.addr))

	s = newSite(t, Config{WriteStallTimeout: limitOf, OutageGrace: -1, Reset: []Reason{}}, func(s *site) { s.open = flood(16 << 20) })
	c := dial(t, s.addr)
	s.requireReaped(t, time.Now(), 0, reap.WriteStall)
	_, err = io.Copy(io.Discard, c)
	require.NoError(t, err, "the kernel still sends its output")
}

func TestTCPKeepAliveSetsTheOptionsOfTheSocket(t *testing.T) {
	t.Parallel()
	conns := make(chan gnet.Conn, 1)
	s := newSite(t, Config{TCPKeepAlive: 40 * time.Second, ReadTimeout: time.Hour}, func(s *site) {
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) { conns <- c; return nil, gnet.None }
	})
	dial(t, s.addr)
	fd := (<-conns).Fd()
	options := func() (got [5]int) {
		for i, o := range []struct{ level, name int }{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
			{unix.IPPROTO_TCP, unix.TCP_KEEPCNT}, {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
		} {
			got[i], _ = unix.GetsockoptInt(fd, o.level, o.name)
		}
		return got
	}
	require.Equal(t, [5]int{1, 20, 5, 4, 40_000}, options())
	for _, d := range []time.Duration{32 * time.Second, 24 * time.Hour, 0} {
		require.NoError(t, s.reaper.Update(func(cfg *Config) { cfg.TCPKeepAlive = d }))
		eventually(t, "an update has set the options", func() bool {
			got := options()
			return (got[0] == 1) == (d > 0) && got[4] == int(d.Milliseconds())
		})
	}
}

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

// answer reads from a connection and answers each PING until the connection is closed.
func answer(t testing.TB, c net.Conn, with string) (pings *atomic.Int32) {
	pings = new(atomic.Int32)
	var answering sync.WaitGroup
	answering.Go(func() {
		b := make([]byte, 64)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			pings.Add(int32(bytes.Count(b[:n], []byte("PING\n"))))
			if _, err := c.Write([]byte(with)); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() { c.Close(); answering.Wait() })
	return pings
}

// requirePings reads the pings of a client that answers none until it is closed. There are more
// than MaxMissed if the server was away, since it could not have read an answer in that time.
func requirePings(t testing.TB, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	got, err := io.ReadAll(c)
	require.NoError(t, err, "the stream ends without an error")
	require.Regexp(t, `^(PING\n){2,}$`, string(got))
}

func TestHeartbeatsCloseAPeerThatDoesNotAnswer(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		s := newSite(t, Config{Heartbeat: pinging()}, nil)
		began := time.Now()
		living, talking, silent := dial(t, s.addr), dial(t, s.addr), dial(t, s.addr)
		pings := answer(t, living, "PONG\n")
		sendEvery(t, talking, limitOf/8)
		requirePings(t, silent)
		reason := s.requireReaped(t, began, 2*limitOf, reap.HeartbeatTimeout)
		require.Equal(t, 2*limitOf, reason.Limit)
		time.Sleep(4 * limitOf)
		require.Len(t, s.reasons(), 1)
		require.GreaterOrEqual(t, pings.Load(), int32(3))
		require.NoError(t, talking.SetReadDeadline(time.Now().Add(limitOf/4)))
		_, err := talking.Read(make([]byte, 8))
		require.Error(t, err, "a peer that sends gets no ping")
	})
}

func TestAPingBehindOutputIsNotMissed(t *testing.T) {
	t.Parallel()
	h := pinging()
	s := newSite(t, Config{Heartbeat: h}, func(s *site) { s.open = flood(32 << 20) })
	c := dialSmall(t, s.addr)
	got := 0
	stop := time.Now().Add(4 * time.Second)
	b := make([]byte, 8<<10)
	for time.Now().Before(stop) {
		n, err := c.Read(b)
		got += n
		if err != nil {
			break
		}
		if bytes.Contains(b[:n], []byte("PING")) {
			_, _ = c.Write([]byte("PONG\n"))
		}
		time.Sleep(5 * time.Millisecond)
	}
	require.Empty(t, s.reasons(), "the peer has read %d bytes and acknowledges them, but the ping is behind more output", got)
}

// TestAnOutageOfOneNetworkOfTwoClosesNoLivingClient cuts those clients off for a while that are
// reached by one of two networks. Frozen programs among them are closed.
func TestAnOutageOfOneNetworkOfTwoClosesNoLivingClient(t *testing.T) {
	t.Parallel()
	type outage struct {
		clients  [2]int // of the network that fails, and of the other one
		timeouts float64
	}
	outages := []outage{{[2]int{150, 150}, 0.5}, {[2]int{150, 150}, 0.8}, {[2]int{150, 150}, 1.5}}
	if needs.IsLong() {
		outages = []outage{{[2]int{5000, 5000}, 0.8}, {[2]int{2500, 7500}, 0.8}, {[2]int{625, 9375}, 0.8}}
	}
	timeout := sequenceConfig.ReadTimeout
	for _, tc := range outages {
		t.Run(fmt.Sprintf("%v of %v for %v timeouts", tc.clients[0], tc.clients[0]+tc.clients[1], tc.timeouts), func(t *testing.T) {
			const dead = 25
			if !needs.IsLong() {
				t.Parallel() // first: a test that waits for its turn must not keep descriptors
			}
			needs.Descriptors(t, tc.clients[0]+tc.clients[1]+2*dead)
			fair.Try(t, func(t testing.TB) {
				server := startPlay(t, "sequence", "tcp://0.0.0.0:0")
				var cables [2]*faultynet.Cable
				var fleets [2]*fleet
				var all [2]*beats
				for n, living := range tc.clients {
					cables[n] = faultynet.New(t)
					fleets[n] = fleetOf(t, cables[n], faultynet.PortOf(server.addr), living+dead)
				}
				for n, living := range tc.clients {
					fleets[n].send(0, living+dead, "the first beat")
					all[n] = fleets[n].beat(living, rand.New(rand.NewPCG(uint64(n), 0)), timeout*3/10, timeout*9/10)
				}
				time.Sleep(3 * timeout)
				server.await("the frozen programs are closed", func(a account) bool { return a.closed() == 2*dead })
				mend := cables[0].Lose(t, faultynet.ToServer, faultynet.ToClient)
				time.Sleep(time.Duration(tc.timeouts * float64(timeout)))
				mend()
				time.Sleep(4 * timeout)
				for n := range fleets {
					cut, late := all[n].cut(timeout / 25)
					assert.Zero(t, cut, "living clients of network %d were closed, besides %d that were late themselves", n, late)
					t.Logf("network %d: %d clients were late themselves", n, late)
				}
				server.end()
			})
		})
	}
}

// TestAGroupIsHeld silences the connections of one name among others from the same address, and
// those with one address of a listener on all addresses. The first byte chooses the name; the byte
// - takes the connection out of its group again.
func TestAGroupIsHeld(t *testing.T) {
	t.Parallel()
	for listen, g := range map[string]struct {
		want, first, other string
		host               string // of the others
	}{
		"tcp://127.0.0.2:0": {"group g", "g", "-", "127.0.0.2"},
		"tcp://0.0.0.0:0":   {"local 127.0.0.2", "x", "x", "127.0.0.1"},
		"tcp://:0":          {"local 127.0.0.2", "x", "x", "127.0.0.1"},
	} {
		fair.RunParallel(t, listen, func(t testing.TB) {
			silenceAGroup(t, listen, g.want, map[[2]string]bool{{"127.0.0.2", g.first}: true, {g.host, g.other}: false})
		})
	}
}

// silenceAGroup connects clients to addresses, and each sends a first message. Some fall silent.
func silenceAGroup(t testing.TB, listen, want string, silent map[[2]string]bool) {
	const n, timeout = 40, time.Second
	s := newSite(t, Config{ReadTimeout: timeout}, func(s *site) {
		s.listen = listen
		s.traffic = func(c gnet.Conn) gnet.Action {
			b, _ := c.Next(-1)
			if conn, _ := s.reaper.Conn(c); b[0] != 'x' {
				conn.SetGroup(string(b[0]))
				if b[0] == '-' {
					conn.SetGroup("")
				}
			}
			return gnet.None
		}
	})
	var some, others []net.Conn
	for range n {
		for to, silent := range silent {
			c := sockets.Dial(t, "tcp", fmt.Sprintf("%s:%d", to[0], faultynet.PortOf(s.addr)))
			_, err := c.Write([]byte(to[1]))
			require.NoError(t, err)
			if silent {
				some = append(some, c)
			} else {
				others = append(others, c)
			}
		}
	}
	stop := testpeer.KeepSending(t, some)
	_ = testpeer.KeepSending(t, others)
	time.Sleep(2 * timeout)
	stop()
	stopped := time.Now()
	var held []reap.Suspension
	eventually(t, "the group is held", func() bool { held = s.reaper.Stats().SuspendedFor; return len(held) > 0 })
	require.Equal(t, want, held[0].Group.String())
	time.Sleep(time.Until(stopped.Add(timeout * 3 / 2)))
	require.Empty(t, s.reasons(), "verdicts are held")
	_ = testpeer.KeepSending(t, some[:1])
	eventually(t, "silent connections are closed", func() bool { return len(s.reasons()) == n-1 })
	require.Empty(t, s.reaper.Stats().SuspendedFor)
	require.EqualValues(t, 1, s.reaper.Stats().GroupSuspensions)
}
