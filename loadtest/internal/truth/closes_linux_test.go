package truth

import (
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
)

// requireLateness compares the lateness with that of the server. The program may see a close later
// than the server: by up to 50 ms at the median and 150 ms at the p99, and never earlier.
func requireLateness(t testing.TB, want truth, g group) {
	t.Helper()
	within(t, "lateness p50", g.Lateness.P50, quantile(want.lateness, 0.5)-time.Millisecond, quantile(want.lateness, 0.5)+50*time.Millisecond)
	within(t, "lateness p99", g.Lateness.P99, quantile(want.lateness, 0.98)-time.Millisecond, quantile(want.lateness, 1)+150*time.Millisecond)
}

// TestEarlyReaps closes dead connections 300 ms before their timeout. The bound is 20 ms.
func TestEarlyReaps(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		want, got := run(t, func() faults { return faults{timeout: timeout, offset: -300 * time.Millisecond} }, living)
		got.requireOutcome(t, exitFailed)
		g := got.group(t, "living")
		require.Equal(t, connections, want.endings[reaped])
		require.Equal(t, connections, g.Early)
		within(t, "earliest", time.Duration(g.EarliestBy), 270*time.Millisecond, 301*time.Millisecond)
		require.Contains(t, got.text, "early", "the text tells by how much")
	})
}

// TestLateReaps closes dead connections 500 ms after their timeout.
func TestLateReaps(t *testing.T) {
	t.Parallel()
	for flags, code := range map[string]int{"": exitPassed, " --expect lateness.p99<2s": exitPassed, " --expect lateness.p50<250ms": exitFailed} {
		t.Run("hold"+flags, func(t *testing.T) {
			fair.TryParallel(t, func(t testing.TB) {
				want, got := run(t, func() faults { return faults{timeout: timeout, offset: 500 * time.Millisecond} }, living+flags)
				got.requireOutcome(t, code)
				g := got.group(t, "living")
				require.Equal(t, connections, g.Reaped)
				require.Zero(t, g.Early)
				within(t, "truth", quantile(want.lateness, 0.5), 500*time.Millisecond, 540*time.Millisecond)
				requireLateness(t, want, g)
			})
		})
	}
}

// TestClosesOfLivingConnections closes living connections: some of them at their sixth message, by
// both directions or by one, and all of them at once.
func TestClosesOfLivingConnections(t *testing.T) {
	t.Parallel()
	sixth := func(close func(p *peer)) func(p *peer, m message) {
		return func(p *peer, m message) {
			if p.echo(m.line); p.n%20 == 0 && m.n == 5 {
				close(p)
			}
		}
	}
	for name, tc := range map[string]struct {
		faults func() faults
		closed int
	}{
		"5 percent":                {reaper(sixth(func(p *peer) { p.close(killed) })), connections / 20},
		"5 percent by half-closes": {reaper(sixth(func(p *peer) { _ = p.conn.CloseWrite() })), connections / 20},
		"all at once": {func() faults {
			var messages atomic.Int64
			return faults{timeout: timeout, answer: func(p *peer, m message) {
				if p.echo(m.line); messages.Add(1) == 3*connections {
					p.s.killAll()
				}
			}}
		}, connections},
	} {
		t.Run(name, func(t *testing.T) {
			fair.TryParallel(t, func(t testing.TB) {
				want, got := run(t, tc.faults, living)
				got.requireOutcome(t, exitFailed)
				g := got.group(t, "living")
				require.Equal(t, connections, want.opened)
				require.Equal(t, tc.closed, g.Lost)
				require.Equal(t, connections-tc.closed, g.Reaped)
				require.Zero(t, g.Starved+g.Early+g.Kept)
			})
		})
	}
}

// TestWaysToReap closes dead connections by a RST, after a goodbye, and by a half-close.
func TestWaysToReap(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reap        func(p *peer)
		reset, told int
	}{
		"RST":        {func(p *peer) { _ = p.conn.SetLinger(0) }, connections, 0},
		"goodbye":    {func(p *peer) { _, _ = io.WriteString(p.conn, "goodbye\n") }, 0, connections},
		"half-close": {func(p *peer) { _ = p.conn.CloseWrite() }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fair.TryParallel(t, func(t testing.TB) {
				want, got := run(t, func() faults { return faults{timeout: timeout, reap: tc.reap} }, living)
				got.requireOutcome(t, exitPassed)
				g := got.group(t, "living")
				require.Equal(t, connections, want.endings[reaped])
				require.Equal(t, connections, g.Reaped)
				require.Equal(t, tc.reset, g.Reset)
				require.Equal(t, tc.told, g.Told)
				requireSameCounts(t, want, g)
				requireLateness(t, want, g)
			})
		})
	}
}

// TestRefusedConnections refuses 96 of 500 connections, by a RST after accept, or by a closed
// listener. The program may see a RST before or after it counts the connection as opened.
func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	const all, served = 500, 404
	for name, f := range map[string]faults{
		"RST":             {timeout: timeout, refuse: func(n int) bool { return n >= served }},
		"closed listener": {timeout: timeout, limit: served},
	} {
		t.Run(name, func(t *testing.T) {
			fair.TryParallel(t, func(t testing.TB) {
				want, got := run(t, func() faults { return f },
					"hold -c 500 --rate 500 --timeout 1500ms --heartbeat 150ms --hold 500ms --tick 10ms --patience 1s")
				got.requireOutcome(t, exitFailed)
				g := got.group(t, "living")
				require.Equal(t, served, want.opened-want.endings[refused])
				require.Equal(t, all-served, g.OpenFailed+g.Lost)
				require.Equal(t, served, g.Reaped)
				if f.limit > 0 {
					// The kernel opens one every 2 ms until the listener is closed. Those are lost.
					require.InDelta(t, all-served, g.OpenFailed, 10)
				}
			})
		})
	}
}
