package truth

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
)

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
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	text := string(b)
	return strings.HasPrefix(text[strings.LastIndexByte(text, ')')+1:], " T")
}

// signalAll sends a signal to processes.
func signalAll(t testing.TB, pids []int, sig syscall.Signal) {
	t.Helper()
	for _, pid := range pids {
		assert.NoError(t, syscall.Kill(pid, sig))
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
		signalAll(t, workers, syscall.SIGSTOP)
		time.Sleep(2 * time.Second)
		signalAll(t, workers, syscall.SIGCONT)
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
		workers := p.workers(t)
		signalAll(t, workers, syscall.SIGSTOP)
		time.Sleep(1500 * time.Millisecond)
		signalAll(t, workers, syscall.SIGCONT)
		got := p.wait(t)
		require.Equal(t, 50, s.truth().endings[reaped])
		got.requireOutcome(t, exitNotValid)
		g := got.group(t, "living")
		require.Equal(t, 50, g.Starved)
		require.Zero(t, g.Lost)
	})
}

// TestStall stops a server for half of its timeout, which it survives, and for one and a half: its
// deadlines pass while messages wait, and it closes living connections.
func TestStall(t *testing.T) {
	needs.Long(t)
	t.Parallel()
	for _, tc := range []struct {
		stall time.Duration
		code  int
	}{{300 * time.Millisecond, exitPassed}, {2250 * time.Millisecond, exitFailed}} {
		fair.RunParallel(t, tc.stall.String(), func(t testing.TB) {
			server := serveElsewhere(t, timeout)
			got := start(t, fmt.Sprintf("stall -c 100 --timeout 1500ms --heartbeat 200ms --tick 10ms --stall %v --pid %d --target %s",
				tc.stall, server.cmd.Process.Pid, server.addr)).wait(t)
			ended := time.Now()
			want := server.end(t)
			// Closed right after the stall, 2.5 s before the end, and not in the phase of silence.
			alive := 0
			for _, at := range want.Closed {
				if ended.Sub(at) > 2300*time.Millisecond {
					alive++
				}
			}
			got.requireOutcome(t, tc.code)
			g := got.group(t, "living")
			require.Equal(t, want.Opened, g.Opened)
			require.Equal(t, want.Reaped, g.Lost+g.Reaped)
			require.Equal(t, alive, g.Lost)
			require.Equal(t, tc.code == exitFailed, alive > 0)
		})
	}
}

// TestSignalsDuringAStallContinueTheServer ends the program while the server is stopped.
func TestSignalsDuringAStallContinueTheServer(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT} {
		fair.RunParallel(t, sig.String(), func(t testing.TB) {
			server := serveElsewhere(t, 500*time.Millisecond)
			pid := server.cmd.Process.Pid
			p := start(t, "stall -c 20 --timeout 500ms --heartbeat 100ms --tick 10ms --stall 30s --pid "+strconv.Itoa(pid)+" --target "+server.addr)
			for deadline := time.Now().Add(20 * time.Second); !stopped(t, pid); time.Sleep(10 * time.Millisecond) {
				require.True(t, time.Now().Before(deadline), "the server was not stopped within 20 s")
			}
			require.NoError(t, p.cmd.Process.Signal(sig))
			got := p.wait(t)
			require.Equal(t, exitInterrupted, got.code, got.text)
			require.True(t, got.Interrupted)
			require.False(t, stopped(t, pid))
			require.Equal(t, 20, server.end(t).Opened, "the server runs")
		})
	}
}

// TestStallRefusesForeignProcess names a process that is not the server.
func TestStallRefusesForeignProcess(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		s := serve(t, faults{timeout: timeout})
		other := serveElsewhere(t, timeout)
		got := start(t, fmt.Sprintf("stall -c 20 --timeout 1500ms --pid %d --target %s", other.cmd.Process.Pid, s.addr)).wait(t)
		require.Equal(t, exitUsage, got.code, got.text)
		require.Zero(t, s.truth().opened, "it opens no connection")
	})
}

// TestUnlikeResultsAreNotMerged merges results of equal and of unlike runs, and an empty file.
func TestUnlikeResultsAreNotMerged(t *testing.T) {
	needs.Long(t)
	fair.TryParallel(t, func(t testing.TB) {
		const brief = "hold -c 20 --timeout 5s --hold 1s --reap=false --heartbeat "
		_, a := run(t, func() faults { return faults{timeout: 5 * time.Second} }, brief+"100ms")
		_, b := run(t, func() faults { return faults{timeout: 5 * time.Second} }, brief+"100ms")
		_, unlike := run(t, func() faults { return faults{timeout: 5 * time.Second} }, brief+"200ms")
		empty := t.TempDir() + "/empty.json"
		require.NoError(t, os.WriteFile(empty, nil, 0o600))
		out := t.TempDir() + "/sum.json"
		merged := start(t, "merge --out "+out+" "+a.file+" "+b.file).wait(t)
		require.Equal(t, exitPassed, merged.code, merged.text)
		var total report
		text, err := os.ReadFile(out)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &total))
		ga, gb, both := a.group(t, "living"), b.group(t, "living"), total.group(t, "living")
		require.Equal(t, ga.Messages+gb.Messages, both.Messages)
		require.Equal(t, 40, both.Opened)
		for _, line := range []string{"merge " + a.file + " " + unlike.file, "merge " + a.file + " " + a.file, "merge " + a.file + " " + empty} {
			got := start(t, line).wait(t)
			require.NotEqual(t, exitPassed, got.code, got.text)
			require.NotContains(t, got.text, "passed")
		}
	})
}
