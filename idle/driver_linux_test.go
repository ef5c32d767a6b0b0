package idle

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/reap"
)

// outageConfig is the Config of servers in an outage.
var outageConfig = Config{ReadTimeout: 5 * time.Second}

const (
	outageClients  = 300
	outageInterval = 1600 * time.Millisecond
	// outageLength is 6.4 s, so that TCP sends many lost bytes again from 6.4 to 8 s after the
	// beginning. The next time comes after the end of the hold, 10 s after the beginning.
	outageLength = 4 * outageInterval
)

func init() { plays["outage"] = play{cfg: outageConfig} }

// addressOf returns the address of a client of a fleet, as the server sees it.
func (f *fleet) addressOf(i int) string {
	sa, err := unix.Getsockname(f.conns[i].fd)
	require.NoError(f.t, err)
	in := sa.(*unix.SockaddrInet4)
	return net.JoinHostPort(net.IP(in.Addr[:]).String(), fmt.Sprint(in.Port))
}

// TestAnOutageClosesNoLivingClient cuts living clients off from the server for longer than the
// timeout. The server's process is stopped, as by a debugger or a full disk; or it is stopped and
// packets are lost, as when a machine is paused; or packets are lost, as when a network fails. No
// client may be closed until all could be heard again. Afterwards silent clients are closed as
// before.
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
		fair.RunParallel(t, tc.name, func(t testing.TB) {
			const n = outageClients
			wire := faultynet.New(t)
			server := startPlay(t, "outage", "tcp://"+wire.Host()+":0")
			f := fleetOf(t, wire, faultynet.PortOf(server.addr), n)
			b := f.beat(n, rand.New(rand.NewPCG(1, 0)), outageInterval*9/10, outageInterval)
			time.Sleep(2 * outageInterval)
			require.Zero(t, server.account().closed(), "before the outage")

			mend := func() {}
			if tc.lost {
				mend = wire.Lose(t, faultynet.ToServer, faultynet.ToClient)
			}
			if tc.stopped {
				server.pause()
			}
			began := time.Now()
			time.Sleep(outageLength)
			mend()
			if tc.stopped {
				server.resume(0)
			}
			t.Logf("outage of %v", time.Since(began))
			time.Sleep(outageLength * 3 / 2) // TCP sends the last lost bytes again after outageLength
			b.end()
			a := server.account()
			require.Len(t, a.Traces, n)
			assert.Zero(t, a.closed(), "living clients were closed; %d were saved by the kernel", a.Stats.SparedUnread)

			// Dead and living connections are still told apart.
			a = server.await("silent clients are closed", func(a account) bool { return a.closed() == n })
			require.Len(t, a.reaped(func(tr trace) bool { return tr.Reason == "read idle" }), n)
			shortest, longest := f.silences(0, n)
			t.Logf("then silent, closed after %v to %v", shortest, longest)
			assert.GreaterOrEqual(t, shortest, outageConfig.ReadTimeout, "never early")
			server.end()
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
		fair.RunParallel(t, tc.name, func(t testing.TB) {
			const n = outageClients
			promised := 2*outageConfig.ReadTimeout + 100*time.Millisecond // two ticks
			server := startPlay(t, "outage", "tcp://0.0.0.0:0")
			port := faultynet.PortOf(server.addr)
			wire := faultynet.New(t)
			dead := fleetOf(t, wire, port, n)

			living := fleetOf(t, faultynet.New(t), port, tc.living)
			rng := rand.New(rand.NewPCG(1, 0))
			living.beat(tc.living, rng, outageInterval*9/10, outageInterval)
			dying := dead.beat(n, rng, outageInterval*9/10, outageInterval)
			time.Sleep(2 * outageInterval)
			require.Zero(t, server.account().closed(), "all clients are alive")
			dying.end()
			wire.Lose(t, faultynet.ToServer, faultynet.ToClient)
			died := monotonic()

			a := server.await("the dead connections are closed", func(a account) bool { return a.closed() >= n })
			by := a.by()
			var silences []time.Duration
			for i := range n {
				tr, sent := by[dead.addressOf(i)], monotonic()-dead.now()+dead.conns[i].sentFrom.Load()
				assert.Equal(t, "read idle", tr.Reason, tr.Message)
				assert.GreaterOrEqual(t, time.Duration(tr.Closed-sent), outageConfig.ReadTimeout-time.Millisecond, "never early")
				// Verdicts are held until two timeouts after the last byte of any of them.
				silences = append(silences, time.Duration(tr.Closed-died))
			}
			t.Logf("closed after the clients died: first %v, p50 %v, p90 %v, p99 %v, last %v; promised is %v to %v",
				part(silences, 0), part(silences, 0.5), part(silences, 0.9), part(silences, 0.99), part(silences, 1),
				outageConfig.ReadTimeout, promised)
			assert.LessOrEqual(t, part(silences, 0.5), promised, "closed in time, apart from delays of the machine")
			assert.LessOrEqual(t, part(silences, 1), promised+room, "no dead connection is left for long")
			assert.Zero(t, living.lost(0, tc.living), "no living connection is closed")
		})
	}
}

// fleetOf opens n connections from the far end of a cable.
func fleetOf(t testing.TB, wire *faultynet.Cable, port, n int) (f *fleet) {
	t.Helper()
	wire.Inside(t, func() { f = dialFleet(t, &net.TCPAddr{IP: net.ParseIP(wire.Host()), Port: port}, n) })
	return f
}

// pauseLimit is shorter than pauseLength, the length of a pause of the server.
const (
	pauseLimit  = time.Second
	pauseLength = pauseLimit * 3 / 2
)

// largeAnswer is the number of bytes that a server sends on request.
const largeAnswer = 12 << 20

// chunk is a piece of an upload. The server acknowledges each.
const chunk = 1000 // bytes

func init() {
	answer := func(w *witness, c gnet.Conn, b []byte) {
		if bytes.Contains(b, []byte("go")) {
			_, _ = c.Write(make([]byte, largeAnswer))
		}
	}
	plays["soft limit"] = play{cfg: Config{OutputLimit: OutputLimit{Soft: 1 << 20, SoftFor: pauseLimit}}, act: answer}
	plays["write stall"] = play{cfg: Config{WriteStallTimeout: pauseLimit}, act: answer}
	plays["first byte"] = play{cfg: Config{FirstByteTimeout: pauseLimit}}
	plays["greeting"] = play{cfg: Config{FirstByteTimeout: pauseLimit}, open: func(_ *witness, c gnet.Conn) {
		time.AfterFunc(pauseLimit/2, func() { _ = c.AsyncWrite([]byte("welcome"), nil) })
	}}
	rate := MinRate{BytesPerSecond: 5 * chunk, Window: pauseLimit, Grace: pauseLimit / 2, Always: true}
	plays["minimum rate"] = play{cfg: Config{MinRate: rate}, act: func(_ *witness, c gnet.Conn, b []byte) {
		if bytes.Contains(b, []byte("\n")) { // the end of a chunk
			_, _ = c.Write([]byte("ok"))
		}
	}}
	h := Heartbeat{Interval: pauseLimit, Retry: pauseLimit / 2, MaxMissed: 1}
	h.Ping = func(gnet.Conn) []byte { return []byte("PING\n") }
	plays["heartbeat"] = play{cfg: Config{Heartbeat: h}}
	h.IsPong = func(c gnet.Conn) bool {
		b, _ := c.Peek(-1)
		return bytes.Contains(b, []byte("PONG"))
	}
	plays["pong"] = play{cfg: Config{Heartbeat: h}}
}

// A peer is the client of a connection in a test of a pause. It returns when its part is done or
// its connection is closed. The channel is closed when the server is stopped.
type peer func(c net.Conn, stopped <-chan struct{})

// silentPeer sends nothing.
func silentPeer(net.Conn, <-chan struct{}) {}

// speaksOnce sends one byte.
func speaksOnce(c net.Conn, _ <-chan struct{}) { _, _ = c.Write([]byte("x")) }

// asks sends a request and does not read the answer.
func asks(c net.Conn, _ <-chan struct{}) { _, _ = c.Write([]byte("go")) }

// readsOn requests a large answer and reads it: a fifth before the server is stopped, and then the
// rest with 100 MB a second.
func readsOn(c net.Conn, stopped <-chan struct{}) {
	asks(c, stopped)
	piece := int64(512 << 10)
	for left := int64(largeAnswer); left > 0; {
		n, err := io.CopyN(io.Discard, c, min(left, piece))
		if err != nil {
			return
		}
		if left -= n; left < largeAnswer*4/5 {
			<-stopped
		}
		select {
		case <-stopped:
			piece = 1 << 20
			time.Sleep(pauseLimit / 100)
		default:
			time.Sleep(pauseLimit / 20)
		}
	}
	_, _ = c.Write([]byte("thanks"))
}

// speaksWhileStopped sends while the server is stopped.
func speaksWhileStopped(c net.Conn, stopped <-chan struct{}) {
	<-stopped
	time.Sleep(rand.N(pauseLength * 3 / 4))
	_, _ = c.Write([]byte("x"))
}

// answersWith returns a peer that answers every message, delayed as on a network path.
func answersWith(message string) peer {
	return func(c net.Conn, _ <-chan struct{}) {
		b := make([]byte, 64)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
			time.Sleep(pauseLimit / 20)
			if _, err := c.Write([]byte(message)); err != nil {
				return
			}
		}
	}
}

// uploads sends the next chunk after each acknowledgement.
func uploads(c net.Conn, _ <-chan struct{}) {
	piece := append(make([]byte, chunk-1), '\n')
	b := make([]byte, 64)
	for {
		if _, err := c.Write(piece); err != nil {
			return
		}
		if _, err := c.Read(b); err != nil {
			return
		}
		time.Sleep(pauseLimit / 10)
	}
}

// TestAPauseOfTheServerIsNotHeldAgainstAPeer stops the server for one and a half times a limit. The
// innocent peers do their part, and none of them may be reaped. One guilty peer does not, and is
// reaped. For HandshakeTimeout see TestAStopDuringAHandshakeClosesNoClient.
func TestAPauseOfTheServerIsNotHeldAgainstAPeer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name             string
		play             string
		innocent, guilty peer
		before           time.Duration // from when the connections are open to the pause
		after            time.Duration // from the pause until all innocent peers have been judged
		reason           Reason
		only             string // the only network; all if empty
		n                int
	}{
		{"first byte that waits", "first byte", speaksWhileStopped, silentPeer, pauseLimit / 4, pauseLimit / 4, reap.NoFirstByte, "", 50},
		{"first byte that answers a greeting", "greeting", answersWith("x"), silentPeer, pauseLimit / 4, pauseLimit, reap.NoFirstByte, "", 50},
		{"write stall", "write stall", readsOn, asks, pauseLimit * 2 / 5, pauseLimit, reap.WriteStall, "", 4},
		{"soft limit", "soft limit", readsOn, asks, pauseLimit * 2 / 5, pauseLimit, reap.OverLimit, "", 4},
		{"minimum rate", "minimum rate", uploads, speaksOnce, pauseLimit * 3 / 5, 2 * pauseLimit, reap.BelowMinRate, "tcp", 50},
		{"heartbeat, before the ping", "heartbeat", answersWith("x"), silentPeer, pauseLimit / 2, 2 * pauseLimit, reap.HeartbeatTimeout, "", 50},
		{"heartbeat, after the ping", "heartbeat", answersWith("x"), silentPeer, pauseLimit * 11 / 10, 2 * pauseLimit, reap.HeartbeatTimeout, "", 50},
		{"pong, before the ping", "pong", answersWith("PONG"), answersWith("what?"), pauseLimit / 2, 2 * pauseLimit, reap.HeartbeatTimeout, "", 50},
		{"pong, after the ping", "pong", answersWith("PONG"), answersWith("what?"), pauseLimit * 11 / 10, 2 * pauseLimit, reap.HeartbeatTimeout, "", 50},
	} {
		for _, network := range networks {
			if tc.only != "" && tc.only != network.name {
				continue
			}
			fair.RunParallel(t, tc.name+"/"+network.name, func(t testing.TB) {
				server := startPlay(t, tc.play, network.addr(t))
				stopped := make(chan struct{})
				var playing sync.WaitGroup
				defer playing.Wait()
				var conns []net.Conn
				defer func() {
					for _, c := range conns {
						_ = c.Close()
					}
				}()
				act := func(p peer) string {
					c := dialNamed(t, server.addr)
					conns = append(conns, c)
					playing.Go(func() { p(c, stopped) })
					return c.LocalAddr().String()
				}
				stop := sync.OnceFunc(func() { close(stopped) })
				defer stop()
				for range tc.n {
					act(tc.innocent)
				}
				guilty := act(tc.guilty)
				server.awaitOpen(tc.n + 1)
				time.Sleep(tc.before)
				server.pause()
				stop()
				server.resume(pauseLength)
				resumed := monotonic()

				server.await("the guilty peer is reaped", func(a account) bool { return a.by()[guilty].Reaped })
				time.Sleep(tc.after - time.Duration(monotonic()-resumed))
				a := server.account()
				require.Len(t, a.Traces, tc.n+1)
				assert.Equal(t, tc.reason.Error(), a.by()[guilty].Reason)
				wrong := a.reaped(func(tr trace) bool { return tr.Peer != guilty })
				for _, tr := range wrong[:min(len(wrong), 3)] {
					t.Logf("%v after the pause, %v after it was opened: %s",
						time.Duration(tr.Closed-resumed), time.Duration(tr.Closed-tr.Opened), tr.Message)
				}
				t.Logf("%d of %d innocent peers reaped; the guilty peer %v after the pause: %s", len(wrong), tc.n,
					time.Duration(a.by()[guilty].Closed-resumed), a.by()[guilty].Message)
				assert.Zero(t, len(wrong), "peers were reaped for a pause of the server")
				for _, tr := range a.Traces {
					if tr.Peer != guilty && !tr.Reaped {
						assert.Empty(t, tr.Message)
					}
				}
				if tc.play == "soft limit" || tc.play == "write stall" {
					for _, tr := range a.Traces {
						if tr.Peer != guilty {
							assert.Len(t, tr.Reads, 2, "the peer has read the answer and sent its thanks")
						}
					}
				}
			})
		}
	}
}
