package idle

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTwoThousandConnectionsHalfOfThemSilent(t *testing.T) {
	const n = 2000
	cfg := Config{ReadTimeout: 2 * time.Second, Tick: 50 * time.Millisecond}
	e := newEcho()
	r := middleware(t, e, cfg)
	addr := serve(t, r, e.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(2))
	f := dialFleet(t, addr, n)
	f.beat(0, n/2, cfg.ReadTimeout/2, 3*cfg.ReadTimeout)

	promised := cfg.ReadTimeout + 2*cfg.Tick + 100*time.Millisecond
	shortest, longest := f.silences(n/2, n)
	t.Logf("%d silent ones closed %v to %v after their last byte, promised is %v to %v",
		f.lost(n/2, n), shortest, longest, cfg.ReadTimeout, promised)
	assert.Equal(t, n/2, f.lost(n/2, n), "every silent one is closed")
	assert.GreaterOrEqual(t, shortest, cfg.ReadTimeout, "none is closed early")
	assert.LessOrEqual(t, f.median(n/2, n), promised, "closed when promised, but for what the machine adds")
	assert.LessOrEqual(t, longest, promised+room, "none is left for long")
	assert.Zero(t, f.lost(0, n/2), "no living one is closed")
	for _, reason := range e.reasons() {
		require.ErrorIs(t, reason, ReadIdle)
	}
	eventually(t, "the counts arrive", func() bool { return r.Stats().Reaped[ReadIdle] == n/2 })
}

// TestNoLivingConnectionIsReapedAfterAStall stops the server for one and a half timeouts, while heartbeats wait unread
// in the sockets: the whole process by a signal, or both of its loops by a handler that blocks.
func TestNoLivingConnectionIsReapedAfterAStall(t *testing.T) {
	timeout := childConfig.ReadTimeout
	for _, network := range networks {
		for _, how := range []string{"process stopped", "loops blocked"} {
			n := 10_000
			if network.name == "unix" {
				n = 2000
			}
			t.Run(fmt.Sprintf("%s/%s/%d", how, network.name, n), func(t *testing.T) {
				if network.name == "unix" { // the others need all descriptors that a process may have
					t.Parallel()
				}
				server := startChild(t, network.addr(t))
				f := dialFleet(t, server.addr, n)
				f.beat(0, n, timeout/2, timeout)
				require.Zero(t, f.lost(0, n), "before the stall")

				stalled := time.Now()
				if how == "process stopped" {
					require.NoError(t, server.cmd.Process.Signal(syscall.SIGSTOP))
					f.beat(0, n, timeout/2, timeout*3/2)
					require.NoError(t, server.cmd.Process.Signal(syscall.SIGCONT))
				} else {
					f.send(0, 1, blockMessage) // gnet gives connections to its loops in turn
					f.send(1, 2, blockMessage)
					f.beat(2, n, timeout/2, timeout*3/2)
				}
				t.Logf("stalled for %v", time.Since(stalled))
				f.beat(0, n, timeout/2, 2*timeout)
				require.Zero(t, f.lost(0, n), "living connections reaped after the stall")

				// The dead are still told from the living.
				eventually(t, "silent ones are reaped", func() bool { return f.lost(0, n) == n })
				shortest, longest := f.silences(0, n)
				t.Logf("then silent, closed after %v to %v", shortest, longest)
				require.GreaterOrEqual(t, shortest, timeout)
				s := server.finish(t)
				t.Logf("%+v", s)
				require.EqualValues(t, n, s.Reaped[ReadIdle])
				if how == "loops blocked" && network.name == "tcp" {
					require.NotZero(t, s.SavedByKernel, "some were judged before gnet had read their heartbeats")
				}
			})
		}
	}
}

// TestMassExpiryDoesNotWaitForTicks lets more connections expire at once than one task may close, with ticks so long that
// the batches must follow one another between them.
func TestMassExpiryDoesNotWaitForTicks(t *testing.T) {
	const n = 4000
	cfg := Config{ReadTimeout: 2 * time.Second, Tick: 2 * time.Second}
	e := newEcho()
	r := middleware(t, e, cfg)
	addr := serve(t, r, e.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(1))
	dial(t, addr)
	eventually(t, "it is watched", func() bool { return r.Stats().Connections == 1 })
	before := r.clock.Stamp()
	eventually(t, "a tick begins", func() bool { return r.clock.Stamp() > before })
	f := dialFleet(t, addr, n) // within one tick
	eventually(t, "the first is reaped", func() bool { return f.lost(0, n) > 0 })
	began := time.Now()
	eventually(t, "all are reaped", func() bool { return f.lost(0, n) == n })
	took := time.Since(began)
	t.Logf("%d closed within %v", n, took)
	// Those that are judged a moment before their deadline wait for one tick more.
	require.Less(t, took, 2*cfg.Tick, "a batch at each tick would take a hundred")
	eventually(t, "the counts arrive", func() bool { return r.Stats().Reaped[ReadIdle] == n+1 })
}
