package truth

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
)

// living is a run of 200 connections that live for 1.5 s and then time out.
const (
	connections = 200
	timeout     = 1500 * time.Millisecond
	living      = "hold -c 200 --timeout 1500ms --heartbeat 150ms --hold 1500ms --tick 10ms --patience 1s"
)

// reaper returns a correct server, except for how it answers.
func reaper(answer func(p *peer, m message)) func() faults {
	return func() faults { return faults{timeout: timeout, answer: answer} }
}

// requireSameCounts requires that messages and answers are those that the server counted.
func requireSameCounts(t testing.TB, want truth, g group) {
	t.Helper()
	sent, answered := g.sent()
	require.Equal(t, want.messages, g.Messages, "messages")
	require.Equal(t, want.messages, sent, "messages by phase")
	require.Equal(t, want.answers, answered, "answers by phase")
}

func TestCorrectServer(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		want, g := runLiving(t, exitPassed, reaper(nil), living)
		requireSameCounts(t, want, g)
		require.Equal(t, connections, want.opened)
		require.Equal(t, want.opened, g.Opened)
		require.Equal(t, want.answers, g.Answers)
		require.Equal(t, want.endings[reaped], g.Reaped)
		require.Zero(t, g.Early+g.Kept+g.Lost+g.Starved+g.Reset+g.Told+g.Garbled+g.Unanswered+g.Doubled+g.Skipped+g.Swapped)
		require.Equal(t, connections, g.Connect.Count)
		require.Equal(t, connections, g.Lateness.Count)
		requireLateness(t, want, g)
	})
}

// TestMissingAnswers loses answers: of most messages, of every hundredth, and of all on some
// connections.
func TestMissingAnswers(t *testing.T) {
	t.Parallel()
	for name, loses := range map[string]func(p *peer, m message) bool{
		"84 percent of the answers":      func(_ *peer, m message) bool { return m.n%25 < 21 },
		"1 percent of the answers":       func(p *peer, m message) bool { return (p.n+m.n)%100 == 0 },
		"all answers of few connections": func(p *peer, _ message) bool { return p.n%20 == 0 },
	} {
		fair.RunParallel(t, name, func(t testing.TB) {
			want, g := runLiving(t, exitFailed, reaper(func(p *peer, m message) {
				if !loses(p, m) {
					p.echo(m.line)
				}
			}), living)
			require.Less(t, want.answers, want.messages, "the server loses answers")
			requireSameCounts(t, want, g)
			// A message without an answer is skipped if a later one is answered.
			unanswered := 0
			for _, e := range g.Exchanges {
				unanswered += e.Unanswered
			}
			require.Equal(t, want.messages-want.answers, g.Skipped+unanswered, "each lost answer counts once")
		})
	}
}

// TestPercentilesWithoutAnswers loses 1 to 90 percent of the messages, or all of the connections of
// such a part, and answers the others after 60 ms. No percentile is below the truth: a message
// without an answer took longer than all others.
func TestPercentilesWithoutAnswers(t *testing.T) {
	t.Parallel()
	const delay = 60 * time.Millisecond
	for _, percent := range []int{1, 20, 50, 90} {
		for name, of := range map[string]func(p *peer, m message) int{
			"messages":    func(p *peer, m message) int { return 37*p.n + 11*m.n },
			"connections": func(p *peer, _ message) int { return 37 * p.n },
		} {
			fair.RunParallel(t, fmt.Sprintf("%d percent of the %s", percent, name), func(t testing.TB) {
				want, got := run(t, func() faults {
					return faults{answer: func(p *peer, m message) {
						if of(p, m)%100 >= percent {
							time.Sleep(delay)
							p.echo(m.line)
						}
					}}
				}, "hold -c 200 --timeout 0 --heartbeat 300ms --hold 2s --reap=false --patience 2s")
				g, answered, all := got.group(t, "heartbeat"), 0, 0
				for phase, l := range g.Latency {
					answered, all = answered+l.Corrected.Count, all+l.All.Count
					for q, told := range map[float64]time.Duration{0.5: l.All.P50, 0.99: l.All.P99, 0.999: l.All.P999, 1: l.All.Max} {
						least := delay
						if q*float64(l.All.Count) > float64(l.Corrected.Count) { // never answered
							least = max(l.Corrected.Max, delay)
						}
						require.GreaterOrEqual(t, told, least, "%v in phase %s", q, phase)
					}
				}
				require.Equal(t, want.answers, answered, "answers")
				require.Equal(t, want.messages, all, "every message counts")
			})
		}
	}
}

// TestDelayedAnswers delays each answer by 60 ms. The bound is 40 ms.
func TestDelayedAnswers(t *testing.T) {
	needs.Long(t)
	fair.TryParallel(t, func(t testing.TB) {
		const delay = 60 * time.Millisecond
		_, g := runLiving(t, exitPassed, reaper(func(p *peer, m message) {
			time.AfterFunc(delay, func() { p.echo(m.line) })
		}), living)
		within(t, "corrected p50", g.Latency["hold"].Corrected.P50, delay, delay+40*time.Millisecond)
		within(t, "raw p50", g.Latency["hold"].Raw.P50, delay-time.Millisecond, delay+40*time.Millisecond)
	})
}

// TestPausesAreInTheTail stands still for the first 400 ms of each 4 s. A client that sends at a
// rate meets it with a tenth of its messages: their delays are evenly spread from 0 to 400 ms, so
// the p99 is 360 ms and the p99.9 is 396 ms. The bound is 60 ms.
func TestPausesAreInTheTail(t *testing.T) {
	needs.Long(t)
	fair.TryParallel(t, func(t testing.TB) {
		_, got := run(t, func() faults {
			var once sync.Once
			var began time.Time
			return faults{answer: func(p *peer, m message) {
				once.Do(func() { began = time.Now() })
				if at := time.Since(began) % (4 * time.Second); at < 400*time.Millisecond {
					time.Sleep(400*time.Millisecond - at)
				}
				p.echo(m.line)
			}}
		}, "echo -c 50 --timeout 0 --send-rate 1000 --for 8s --patience 1s")
		got.requireOutcome(t, exitPassed)
		h := got.group(t, "living").Latency["echo"].Corrected
		within(t, "p50", h.P50, 0, 60*time.Millisecond)
		within(t, "p99", h.P99, 300*time.Millisecond, 420*time.Millisecond)
		within(t, "p99.9", h.P999, 336*time.Millisecond, 456*time.Millisecond)
	})
}

// TestRateOfAnswers limits all answers to exactly 1,000 per second. The bound is 2 percent.
func TestRateOfAnswers(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		_, got := run(t, func() faults {
			var mu sync.Mutex
			var next time.Time
			return faults{answer: func(p *peer, m message) {
				mu.Lock()
				if next.IsZero() {
					next = time.Now()
				}
				next = next.Add(time.Millisecond)
				slot := next
				mu.Unlock()
				time.Sleep(time.Until(slot))
				p.echo(m.line)
			}}
		}, "echo -c 100 --timeout 0 --for 4s")
		got.requireOutcome(t, exitPassed)
		require.InEpsilon(t, 1000, noted(t, got, "answers per second"), 0.02)
		require.Contains(t, got.text, "each message waits for the last answer", "what a closed loop cannot see")
	})
}

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
		g := got.group(t, "heartbeat")
		require.Equal(t, connections, want.endings[reaped])
		require.Equal(t, connections, g.Early)
		within(t, "earliest", time.Duration(g.EarliestBy), 270*time.Millisecond, 301*time.Millisecond)
		require.Contains(t, got.text, "early", "the text tells by how much")
	})
}

// TestLateReaps closes dead connections 500 ms after their timeout.
func TestLateReaps(t *testing.T) {
	t.Parallel()
	for flags, code := range map[string]int{"": exitFailed, " --expect lateness.p99<2s": exitPassed, " --expect lateness.p50<250ms": exitFailed} {
		fair.RunParallel(t, "hold"+flags, func(t testing.TB) {
			want, g := runLiving(t, code, func() faults { return faults{timeout: timeout, offset: 500 * time.Millisecond} }, living+flags)
			require.Equal(t, connections, g.Reaped)
			require.Zero(t, g.Early)
			within(t, "truth", quantile(want.lateness, 0.5), 500*time.Millisecond, 540*time.Millisecond)
			requireLateness(t, want, g)
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
		said   string
	}{
		"5 percent": {reaper(sixth(func(p *peer) {
			_, _ = io.WriteString(p.conn, "too many")
			p.close(killed)
		})), connections / 20, `closed; the target said "too many"`},
		"5 percent by half-closes": {reaper(sixth(func(p *peer) { _ = p.conn.CloseWrite() })), connections / 20, ""},
		"all at once": {func() faults {
			var messages atomic.Int64
			return faults{timeout: timeout, answer: func(p *peer, m message) {
				if p.echo(m.line); messages.Add(1) == 3*connections {
					p.s.killAll()
				}
			}}
		}, connections, ""},
	} {
		fair.RunParallel(t, name, func(t testing.TB) {
			want, got := run(t, tc.faults, living)
			got.requireOutcome(t, exitFailed)
			g := got.group(t, "heartbeat")
			require.Contains(t, got.text, tc.said)
			require.Equal(t, connections, want.opened)
			require.Equal(t, tc.closed, g.Lost)
			require.Equal(t, connections-tc.closed, g.Reaped)
			require.Zero(t, g.Starved+g.Early+g.Kept)
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
		fair.RunParallel(t, name, func(t testing.TB) {
			want, g := runLiving(t, exitPassed, func() faults { return faults{timeout: timeout, reap: tc.reap} }, living)
			require.Equal(t, connections, want.endings[reaped])
			require.Equal(t, connections, g.Reaped)
			require.Equal(t, tc.reset, g.Reset)
			require.Equal(t, tc.told, g.Told)
			requireSameCounts(t, want, g)
			requireLateness(t, want, g)
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
		fair.RunParallel(t, name, func(t testing.TB) {
			want, g := runLiving(t, exitFailed, func() faults { return f },
				"hold -c 500 --rate 500 --timeout 1500ms --heartbeat 150ms --hold 500ms --tick 10ms --patience 1s")
			require.Equal(t, served, want.opened-want.endings[refused])
			require.Equal(t, all-served, g.OpenFailed+g.Lost)
			require.Equal(t, served, g.Reaped)
			if f.limit > 0 {
				// The kernel opens one every 2 ms until the listener is closed, which may be
				// late. Those are lost.
				require.Positive(t, g.OpenFailed)
			}
		})
	}
}
