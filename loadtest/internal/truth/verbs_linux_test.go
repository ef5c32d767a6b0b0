package truth

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
)

// noted returns the number before a text in the notes.
func noted(t testing.TB, f finished, text string) float64 {
	t.Helper()
	for _, note := range f.Notes {
		found := regexp.MustCompile(`([\d,.]+) ` + text).FindStringSubmatch(note)
		if found == nil {
			continue
		}
		n, err := strconv.ParseFloat(strings.ReplaceAll(found[1], ",", ""), 64)
		require.NoError(t, err)
		return n
	}
	require.FailNow(t, "no note about "+text, "%q", f.Notes)
	return 0
}

// TestLatenessOfStorm compares the lateness of a storm with that of independent clients. The server
// handles one message after the other in 100 µs, so that 500 messages sent at once take 50 ms. The
// clients send their last message when the server has handled those of the storm. The medians
// differ by less than 5 ms on an idle machine; the bound is 15 ms, because other tests run at the
// same time.
func TestLatenessOfStorm(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		got, independent, server := storm(t)
		got.requireOutcome(t, exitPassed)
		require.Equal(t, stormed, got.group(t, "silent").Reaped)
		told, truth := got.group(t, "silent").Lateness.P50, quantile(independent, 0.5)
		t.Logf("lateness p50: the program %v, independent clients %v, the server %v", told, truth, quantile(server, 0.5))
		within(t, "lateness p50", told, truth-15*time.Millisecond, truth+15*time.Millisecond)
	})
}

// stormed is the number of connections of a storm.
const stormed = 500

// storm runs a storm beside independent clients. It returns the lateness that they and the server
// have seen, sorted.
func storm(t testing.TB) (got finished, independent, server []time.Duration) {
	s := serve(t, faults{timeout: timeout, pace: 100 * time.Microsecond})
	began := make(chan struct{})
	independent = make([]time.Duration, 20)
	failures := make([]error, len(independent))
	var running sync.WaitGroup
	defer running.Wait()
	for i := range independent {
		c, err := net.Dial("tcp4", s.addr)
		require.NoError(t, err)
		defer c.Close()
		running.Go(func() { independent[i], failures[i] = outlive(c, began) })
	}
	p := start(t, "storm -c 500 --living 10 --every 50ms --heartbeat 600ms --timeout 1500ms --tick 10ms --calm 1s --target "+s.addr)
	s.await(t, "the burst of last messages", func(all []record) bool {
		recent := 0
		for _, r := range all {
			if time.Since(r.lastByte) < 200*time.Millisecond {
				recent++
			}
		}
		return recent >= stormed*8/10
	})
	time.Sleep(100 * time.Millisecond)
	close(began)
	got = p.wait(t)
	running.Wait()
	require.NoError(t, errors.Join(failures...))
	slices.Sort(independent)
	return got, independent, s.truth().lateness
}

// outlive sends heartbeats until the storm, then a last message, and returns how long after the
// timeout the server closed the connection.
func outlive(c net.Conn, storm <-chan struct{}) (time.Duration, error) {
	for {
		wait, stormy := time.After(100*time.Millisecond), false
		select {
		case <-storm:
			stormy = true
		case <-wait:
		}
		sent := time.Now()
		if _, err := io.WriteString(c, "independent\n"); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(c, make([]byte, len("independent\n"))); err != nil {
			return 0, err
		}
		if !stormy {
			continue
		}
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			return 0, fmt.Errorf("the end of an independent client: %w", err)
		}
		return time.Since(sent) - timeout, nil
	}
}

// TestRateOfChurn compares the rate of a churn with the connections that the server has counted.
// The bound is 5 percent.
func TestRateOfChurn(t *testing.T) {
	needs.Long(t)
	fair.TryParallel(t, func(t testing.TB) {
		want, got := run(t, func() faults { return faults{} }, "churn -c 100 --rate 200 --timeout 0 --for 4s")
		got.requireOutcome(t, exitPassed)
		g := got.group(t, "churn")
		require.Equal(t, want.opened, g.Opened)
		require.InEpsilon(t, 4*200, want.opened, 0.05)
		require.InEpsilon(t, 200, noted(t, got, "connections per second"), 0.05)
		require.Equal(t, want.answers, g.Answers)
		broke := want.endings[broken]
		require.InDelta(t, want.opened/2, broke, float64(want.opened)/10, "every second connection ends by a RST")
	})
}

// TestAttackLeavesOthersAlone attacks a server that serves all connections alike: the others are
// answered within 50 ms at the median, and none is lost.
func TestAttackLeavesOthersAlone(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	for _, attack := range []string{"idle-flood", "slowloris", "silent", "flood --rate 2000", "one-byte"} {
		fair.RunParallel(t, attack, func(t testing.TB) {
			want, got := run(t, func() faults { return faults{timeout: timeout} },
				"attack "+attack+" -c 100 --living 20 --every 50ms --heartbeat 300ms --timeout 1500ms --for 2s --calm 1s")
			got.requireOutcome(t, exitPassed)
			living, attackers := got.group(t, "living"), got.group(t, "attackers")
			require.InDelta(t, want.opened, living.Opened+attackers.Opened, 10, "except for connections at the end")
			require.Zero(t, living.Lost+living.Starved+living.Unanswered+living.Skipped)
			require.Less(t, living.Latency["during"].Corrected.P50, 50*time.Millisecond)
			if attack == "idle-flood" || attack == "silent" {
				require.GreaterOrEqual(t, attackers.Reaped, 100)
			}
		})
	}
}

// TestAttackThatHurtsOthers attacks a server that does not answer any longer 200 ms after it had
// more than 60 connections.
func TestAttackThatHurtsOthers(t *testing.T) {
	needs.Long(t)
	fair.TryParallel(t, func(t testing.TB) {
		want, got := run(t, func() faults {
			return faults{timeout: timeout, answer: func(p *peer, m message) {
				// Messages that were sent before the attack have arrived by then.
				if all := p.s.records(); len(all) <= 60 || time.Since(all[60].opened) < 200*time.Millisecond {
					p.echo(m.line)
				}
			}}
		}, "attack idle-flood -c 100 --living 20 --every 50ms --heartbeat 300ms --timeout 1500ms --for 2s --calm 1s --patience 1s")
		got.requireOutcome(t, exitFailed)
		g, attackers := got.group(t, "living"), got.group(t, "attackers")
		sent, answered := g.sent()
		more, others := attackers.sent()
		require.InDelta(t, want.messages, sent+more, 20, "except for messages sent at the end")
		require.Equal(t, want.answers, answered+others)
		require.Zero(t, g.Exchanges["before"].Unanswered)
		require.NotZero(t, g.Exchanges["during"].Unanswered)
		require.Zero(t, g.Exchanges["after"].Answered)
	})
}

// TestMixOfBehaviours compares a mix with the counts of the server.
func TestMixOfBehaviours(t *testing.T) {
	needs.Long(t)
	fair.TryParallel(t, func(t testing.TB) {
		want, got := run(t, func() faults { return faults{timeout: timeout} },
			"mix -c 200 --mix heartbeat=50,silent=30,trickle=20 --heartbeat 300ms --timeout 1500ms --tick 10ms --for 4s")
		got.requireOutcome(t, exitPassed)
		beats, silent, trickle := got.group(t, "heartbeat"), got.group(t, "silent"), got.group(t, "trickle")
		require.Equal(t, 200, want.opened)
		require.Equal(t, want.opened, beats.Opened+silent.Opened+trickle.Opened)
		require.Equal(t, want.messages, beats.Messages+silent.Messages)
		require.Equal(t, 60, silent.Reaped)
		require.Equal(t, want.endings[reaped], silent.Reaped)
		require.Zero(t, beats.Lost+trickle.Lost)
		// The server reads the only message of a silent connection while others are opened.
		within(t, "lateness p50", silent.Lateness.P50, quantile(want.lateness, 0.5)-time.Millisecond, quantile(want.lateness, 0.5)+200*time.Millisecond)
	})
}

// A sum is what a server in a process of its own tells at its end.
type sum struct {
	Opened, Messages, Reaped int
	Closed                   []time.Time // of the reaped connections
}

// serveUntilEOF serves until stdin is closed, and prints its address and its sum.
func serveUntilEOF(timeout string) {
	d, err := time.ParseDuration(timeout)
	if err != nil {
		panic(err)
	}
	s, err := listen(faults{timeout: d})
	if err != nil {
		panic(err)
	}
	fmt.Println(s.addr)
	_, _ = io.Copy(io.Discard, os.Stdin)
	t := s.truth()
	told := sum{Opened: t.opened, Messages: t.messages, Reaped: t.endings[reaped]}
	for _, r := range s.records() {
		if r.how == reaped {
			told.Closed = append(told.Closed, r.closed)
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(told)
}

// A remote is a server in a process of its own.
type remote struct {
	cmd  *exec.Cmd
	in   io.Closer
	out  *bufio.Reader
	addr string
}

// serveElsewhere starts a server in a process of its own.
func serveElsewhere(t testing.TB, timeout time.Duration) *remote {
	t.Helper()
	r := &remote{cmd: exec.Command(os.Args[0], serverVerb, timeout.String())}
	in, err := r.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := r.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, r.cmd.Start())
	t.Cleanup(func() { _ = r.cmd.Process.Kill(); _ = r.cmd.Wait() })
	r.in, r.out = in, bufio.NewReader(out)
	line, err := r.out.ReadString('\n')
	require.NoError(t, err)
	r.addr = strings.TrimSpace(line)
	return r
}

// end ends the server and returns its sum.
func (r *remote) end(t testing.TB) (s sum) {
	t.Helper()
	require.NoError(t, r.in.Close())
	require.NoError(t, json.NewDecoder(r.out).Decode(&s))
	return s
}

// stopped reports whether a process is stopped by a signal.
func stopped(t testing.TB, pid int) bool {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	return strings.Contains(string(b), "T (stopped)")
}

// stopFor stops processes for a time.
func stopFor(t testing.TB, pids []int, d time.Duration) {
	t.Helper()
	for _, pid := range pids {
		assert.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	time.Sleep(d)
	for _, pid := range pids {
		assert.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	}
}

// TestStoppedWorkersAreNotBlamedOnTheTarget stops the client processes for 2 s while the server
// reaps.
func TestStoppedWorkersAreNotBlamedOnTheTarget(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		s := serve(t, faults{timeout: timeout})
		p := start(t, "hold -c 200 --timeout 1500ms --heartbeat 150ms --hold 1s --tick 10ms --expect lateness.p99<500ms --target "+s.addr)
		s.await(t, "silence", func(all []record) bool {
			last := time.Time{}
			for _, r := range all {
				if r.lastByte.After(last) {
					last = r.lastByte
				}
			}
			return len(all) == connections && !last.IsZero() && time.Since(last) > 700*time.Millisecond
		})
		workers := p.workers(t)
		require.NotEmpty(t, workers)
		stopFor(t, workers, 2*time.Second)
		got := p.wait(t)
		want := s.truth()
		require.Equal(t, connections, want.endings[reaped])
		require.Less(t, quantile(want.lateness, 0.99), 300*time.Millisecond, "the truth")
		got.requireOutcome(t, exitNotValid)
		require.GreaterOrEqual(t, got.OwnDelay["silent"].Max, time.Second)
		require.Contains(t, strings.Join(got.Verdict.Causes, "\n"), "late")
	})
}

// TestStarvedConnectionsAreNotBlamedOnTheTarget stops the client processes for longer than the
// timeout while they should send.
func TestStarvedConnectionsAreNotBlamedOnTheTarget(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		s := serve(t, faults{timeout: 500 * time.Millisecond})
		p := start(t, "hold -c 50 --timeout 500ms --heartbeat 100ms --hold 4s --tick 10ms --target "+s.addr)
		s.await(t, "messages", func(all []record) bool { return len(all) == 50 && all[49].messages > 1 })
		stopFor(t, p.workers(t), 1500*time.Millisecond)
		got := p.wait(t)
		require.Equal(t, 50, s.truth().endings[reaped])
		got.requireOutcome(t, exitNotValid)
		g := got.group(t, "heartbeat")
		require.Equal(t, 50, g.Starved)
		require.Zero(t, g.Lost)
	})
}

// TestOutage stops a server for half of its timeout, which it survives, and for one and a half: its
// deadlines pass while messages wait, and it closes living connections.
func TestOutage(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	for _, tc := range []struct {
		length time.Duration
		code   int
	}{{300 * time.Millisecond, exitPassed}, {2250 * time.Millisecond, exitFailed}} {
		fair.RunParallel(t, tc.length.String(), func(t testing.TB) {
			server := serveElsewhere(t, timeout)
			got := start(t, fmt.Sprintf("outage -c 100 --timeout 1500ms --heartbeat 200ms --tick 10ms --outage %v --pid %d --target %s",
				tc.length, server.cmd.Process.Pid, server.addr)).wait(t)
			ended := time.Now()
			want := server.end(t)
			// Closed right after the outage, 2.5 s before the end, and not in the phase of silence.
			alive := 0
			for _, at := range want.Closed {
				if ended.Sub(at) > 2300*time.Millisecond {
					alive++
				}
			}
			got.requireOutcome(t, tc.code)
			g := got.group(t, "heartbeat")
			require.Equal(t, want.Opened, g.Opened)
			require.Equal(t, want.Reaped, g.Lost+g.Reaped)
			require.Equal(t, alive, g.Lost)
			require.Equal(t, tc.code == exitFailed, alive > 0)
		})
	}
}

// TestSignalsDuringAnOutageContinueTheServer ends the program while the server is stopped.
func TestSignalsDuringAnOutageContinueTheServer(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT} {
		fair.RunParallel(t, sig.String(), func(t testing.TB) {
			server := serveElsewhere(t, 500*time.Millisecond)
			pid := server.cmd.Process.Pid
			p := start(t, "outage -c 20 --timeout 500ms --heartbeat 100ms --tick 10ms --outage 30s --pid "+strconv.Itoa(pid)+" --target "+server.addr)
			for deadline := time.Now().Add(20 * time.Second); !stopped(t, pid); time.Sleep(10 * time.Millisecond) {
				require.True(t, time.Now().Before(deadline), "the server was not stopped within 20 s")
			}
			require.NoError(t, p.cmd.Process.Signal(sig))
			got := p.wait(t)
			require.Equal(t, exitInterrupted, got.code, got.text)
			require.True(t, got.Interrupted)
			require.Contains(t, got.text, "interrupted: the figures")
			require.Equal(t, 20, got.group(t, "heartbeat").Opened, "the result is that of the time until then")
			require.False(t, stopped(t, pid))
			require.Equal(t, 20, server.end(t).Opened, "the server runs")
		})
	}
}

// TestOutageRefusesForeignProcess names a process that is not the server.
func TestOutageRefusesForeignProcess(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		s := serve(t, faults{timeout: timeout})
		other := serveElsewhere(t, timeout)
		got := start(t, fmt.Sprintf("outage -c 20 --timeout 1500ms --pid %d --target %s", other.cmd.Process.Pid, s.addr)).wait(t)
		require.Equal(t, exitUsage, got.code, got.text)
		require.Contains(t, got.text, "this process has no listening socket of "+s.addr)
		require.Zero(t, s.truth().opened, "it opens no connection")
	})
}
