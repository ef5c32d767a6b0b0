package idle

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/engine"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/reap"
)

// stallConfig is the Config of a server that stalls. For a silent peer, the read timeout is the
// first limit that is reached.
var stallConfig = Config{
	ReadTimeout: 2 * time.Second, Tick: 100 * time.Millisecond,
	AllTimeout: 2500 * time.Millisecond, WriteStallTimeout: 2500 * time.Millisecond,
	OutputLimit: OutputLimit{Hard: 1 << 20, Soft: 1 << 16, SoftFor: 2500 * time.Millisecond},
	Heartbeat: Heartbeat{
		Interval: 1200 * time.Millisecond, Retry: 400 * time.Millisecond, MaxMissed: 3,
		Ping: func(gnet.Conn) []byte { return []byte("PING\n") },
	},
}

// blockMessage blocks the loop for one and a half timeouts.
const blockMessage = "block!"

func init() {
	plays["stall"] = play{cfg: stallConfig, act: func(_ *witness, c gnet.Conn, b []byte) {
		if bytes.Contains(b, []byte(blockMessage)) {
			time.Sleep(stallConfig.ReadTimeout * 3 / 2)
		}
		_, _ = c.Write(b)
	}}
}

// TestNoLivingConnectionIsReapedAfterAStall stops the server for one and a half timeouts, while
// heartbeats wait unread in the sockets. A signal stops the whole process, or a handler blocks both
// of its loops.
func TestNoLivingConnectionIsReapedAfterAStall(t *testing.T) {
	if !needs.IsLong() && needs.Many() { // the larger tests need all descriptors of the process
		t.Parallel()
	}
	timeout := stallConfig.ReadTimeout
	for _, network := range networks {
		for _, how := range []string{"process stopped", "loops blocked"} {
			n := 500
			if needs.IsLong() && network.name == "tcp" {
				n = 10_000
			} else if needs.IsLong() {
				n = 2000
			}
			t.Run(fmt.Sprintf("%s/%s/%d", how, network.name, n), func(t *testing.T) {
				if n < 10_000 {
					t.Parallel()
				}
				needs.Descriptors(t, n)
				server := startPlay(t, "stall", network.addr(t))
				f := dialFleet(t, server.addr, n)
				b := f.beat(n, rand.New(rand.NewPCG(1, 0)), timeout*2/5, timeout/2)
				time.Sleep(timeout)

				stalled := time.Now()
				if how == "process stopped" {
					server.pause()
					server.resume(timeout * 3 / 2)
				} else {
					f.send(0, 1, blockMessage) // gnet assigns connections to its loops in turn
					f.send(1, 2, blockMessage)
					time.Sleep(timeout * 3 / 2)
				}
				t.Logf("stalled for %v", time.Since(stalled))
				time.Sleep(2 * timeout)
				cut, late := b.cut(timeout / 4)
				require.Zero(t, cut, "living clients were closed, besides %d that were late themselves", late)
				if late == n {
					t.Skip("the machine is too busy: all clients were late themselves")
				}

				// Dead and living connections are still told apart.
				eventually(t, "silent connections are reaped", func() bool { return f.lost(0, n) == n })
				for i, by := range b.end() {
					if shortest, _ := f.silences(i, i+1); by <= timeout/4 {
						require.GreaterOrEqual(t, shortest, timeout, "never early")
					}
				}
				t.Logf("%d clients were late themselves", late)
				a := server.await("their closes are recorded", func(a account) bool { return a.closed() == n })
				require.Len(t, a.reaped(func(tr trace) bool { return tr.Reason == "read idle" }), n)
				if how == "loops blocked" && network.name == "tcp" && a.Stats.SparedUnread == 0 {
					t.Log("gnet has read all heartbeats before a connection was judged") // on a busy machine
				}
				server.end()
			})
		}
	}
}

// TestMassExpiryDoesNotWaitForTicks lets more connections expire at once than one task may close.
// The ticks are so long that the batches must follow each other within one.
func TestMassExpiryDoesNotWaitForTicks(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		const n = 4000
		needs.Descriptors(t, 2*n)
		cfg := Config{ReadTimeout: 2 * time.Second, Tick: 2 * time.Second}
		e := newEcho()
		r := middleware(t, e, cfg)
		addr := engine.Serve(t, r, e.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(1))
		dial(t, addr)
		eventually(t, "the connection is watched", func() bool { return r.Stats().Connections == 1 })
		before := r.watch.Clock.Stamp()
		eventually(t, "a tick begins", func() bool { return r.watch.Clock.Stamp() > before })
		f := dialFleet(t, addr, n) // within one tick
		eventually(t, "the first connection is reaped", func() bool { return f.lost(0, n) > 0 })
		began := time.Now()
		eventually(t, "all connections are reaped", func() bool { return f.lost(0, n) == n })
		took := time.Since(began)
		t.Logf("%d closed within %v", n, took)
		// A connection that is judged just before its deadline waits for one more tick.
		require.Less(t, took, 2*cfg.Tick, "one batch per tick would take a hundred ticks")
		eventually(t, "the counts arrive", func() bool { return r.Stats().Reaped[reap.ReadIdle] == n+1 })
	})
}
