package idle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/engine"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/reap"
)

const handshakeTimeout = time.Second

func init() {
	plays["handshake"] = play{cfg: Config{HandshakeTimeout: handshakeTimeout}, act: shakeHands}
}

// shakeHands is the server side of a handshake of two round trips.
func shakeHands(w *witness, c gnet.Conn, b []byte) {
	if bytes.Contains(b, []byte("hello")) {
		_, _ = c.Write([]byte("hello"))
	}
	if bytes.Contains(b, []byte("login")) {
		handle(w.reaper, c).Ready()
		_, _ = c.Write([]byte("ready"))
	}
}

// dialNamed connects from an address that the server can tell apart, also over a unix socket.
func dialNamed(t testing.TB, addr net.Addr) net.Conn {
	t.Helper()
	var d net.Dialer
	if addr.Network() == "unix" {
		d.LocalAddr = &net.UnixAddr{Name: fmt.Sprintf("@idlewheel-%d", rand.Uint64()), Net: "unix"}
	}
	c, err := d.Dial(addr.Network(), addr.String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestAStopDuringAHandshakeClosesNoClient stops the server for one and a half timeouts. Its clients
// are connected by then. They send the first of two messages while the server is stopped, and the
// second after the server has answered, delayed as on a network path.
func TestAStopDuringAHandshakeClosesNoClient(t *testing.T) {
	t.Parallel()
	const n, mute = 200, 5
	const stop = handshakeTimeout * 3 / 2
	for _, network := range networks {
		for _, delay := range []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond} {
			fair.RunParallel(t, fmt.Sprintf("%s/%v", network.name, delay), func(t testing.TB) {
				server := startPlay(t, "handshake", network.addr(t))
				clients := make([]net.Conn, n)
				for i := range clients {
					clients[i] = dial(t, server.addr)
				}
				for range mute {
					dial(t, server.addr)
				}
				server.awaitOpen(n + mute)
				server.pause()
				var shaking sync.WaitGroup
				var ready atomic.Int64
				for _, c := range clients {
					shaking.Go(func() {
						time.Sleep(rand.N(stop))
						_, _ = c.Write([]byte("hello"))
						b := make([]byte, 16)
						if _, err := c.Read(b); err != nil {
							return
						}
						time.Sleep(delay)
						_, _ = c.Write([]byte("login"))
						if _, err := c.Read(b); err == nil {
							ready.Add(1)
						}
					})
				}
				server.resume(stop)
				shaking.Wait()
				assert.EqualValues(t, n, ready.Load(), "clients were closed during their handshake")

				a := server.await("silent clients are closed", func(a account) bool { return a.closed() >= mute })
				for _, tr := range a.reaped(func(trace) bool { return true }) {
					assert.Equal(t, "no handshake", tr.Reason)
					assert.GreaterOrEqual(t, time.Duration(tr.Closed-tr.Opened), handshakeTimeout, "never early")
				}
				server.end()
			})
		}
	}
}

// TestALoginThatWaitsForABlockedLoopIsNotCutOff blocks the loop of the server by a handler, in
// OnTraffic or in a task, until the deadline of a handshake has passed. The logins arrive at once
// and wait unread. After a task, gnet runs the task of the Reaper before it reads.
func TestALoginThatWaitsForABlockedLoopIsNotCutOff(t *testing.T) {
	t.Parallel()
	const n = 50
	for _, network := range networks {
		for _, tc := range []struct {
			where string
			block time.Duration
		}{
			{"OnTraffic", 2 * handshakeTimeout},
			{"task", handshakeTimeout * 11 / 10},
			{"task", handshakeTimeout * 5 / 2},
		} {
			fair.RunParallel(t, fmt.Sprintf("%s/%s/%v", network.name, tc.where, tc.block), func(t testing.TB) {
				var reaper *Reaper
				blocked := make(chan struct{})
				ready := make(chan struct{}, n+1)
				e := newEcho()
				e.traffic = func(c gnet.Conn) gnet.Action {
					b, _ := c.Next(-1)
					switch {
					case bytes.Contains(b, []byte("login")):
						handle(reaper, c).Ready()
						ready <- struct{}{}
					case bytes.Contains(b, []byte("block")):
						block := func(context.Context) error {
							close(blocked)
							time.Sleep(tc.block)
							return nil
						}
						if tc.where == "OnTraffic" {
							_ = block(context.Background())
						} else {
							_ = c.EventLoop().Execute(context.Background(), gnet.RunnableFunc(block))
						}
					}
					return gnet.None
				}
				reaper = middleware(t, e, Config{HandshakeTimeout: handshakeTimeout})
				addr := engine.Serve(t, reaper, e.booted, network.addr(t), gnet.WithNumEventLoop(1))

				blocker := dial(t, addr)
				send(t, blocker, "login")
				<-ready
				clients := make([]net.Conn, n)
				for i := range clients {
					clients[i] = dial(t, addr)
				}
				mute := dial(t, addr)
				eventually(t, "all connections are open", func() bool { return reaper.Stats().Opened == n+2 })
				send(t, blocker, "block")
				<-blocked
				for _, c := range clients {
					send(t, c, "login")
				}
				_, err := io.Copy(io.Discard, mute) // this client never logs in
				require.NoError(t, err)
				eventually(t, "all handshakes have ended", func() bool { return len(ready)+len(e.reasons()) >= n+1 })
				cut := 0
				for _, err := range e.reasons() {
					if errors.Is(err, reap.NoHandshake) {
						cut++
					}
				}
				t.Logf("%d of %d closed", cut-1, n)
				assert.Equal(t, 1, cut, "only the mute client is closed, not the clients with unread logins")
				assert.Equal(t, n, len(ready))
			})
		}
	}
}
