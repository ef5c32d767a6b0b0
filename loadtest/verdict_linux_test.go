package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
	"github.com/idlewheel/idlewheel/loadtest/internal/testserver"
)

func TestResultOnStandardOutput(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		addr := testserver.Serve(t, testserver.Reap(time.Minute, ""))
		var out, errs syncbuf.Buffer
		require.Zero(t, execute(t.Context(), strings.Fields("hold -c 5 --target "+addr+" --timeout 1m --heartbeat 100ms --hold 500ms --reap=false --out -"),
			&out, &errs), "%s", &errs)
		var r result.Result
		require.NoError(t, json.Unmarshal([]byte(out.String()), &r), "stdout has only the result")
		require.Equal(t, result.Passed, r.Verdict.Outcome)
		require.Equal(t, "5", r.Setup.Flags["connections"])
		require.Equal(t, 100*time.Millisecond, r.Setup.Groups[0].Interval)
		require.Contains(t, errs.String(), "hold: 5 connections")
		require.NoFileExists(t, toStdout)
	})
}

func TestHeartbeatFitsTheTimeout(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		addr := testserver.Serve(t, testserver.Reap(3*time.Second, ""))
		f := command(t, t.Context(), "hold -c 5 --target "+addr+" --timeout 3s --hold 500ms --reap=false")
		require.Zero(t, f.code, f.errs)
		require.Equal(t, time.Second, f.result.Setup.Groups[0].Interval)
	})
}

func TestEchoPairKeepsAllTurns(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		a, b := testserver.Serve(t, testserver.Reap(time.Minute, "")), testserver.Serve(t, testserver.Reap(time.Minute, ""))
		dir := t.TempDir()
		var out, errs syncbuf.Buffer
		require.Zero(t, execute(t.Context(), strings.Fields("echo -c 5 --target "+a+" --pair "+b+" --for 1s --rounds 2 --timeout 0 --out "+
			filepath.Join(dir, "x.json")), &out, &errs), "%s", &errs)
		require.Contains(t, out.String(), b+" has ")
		require.Contains(t, out.String(), "times the answers of "+a)
		for name, addr := range map[string]string{"x-1a.json": a, "x-1b.json": b, "x-2a.json": a, "x-2b.json": b} {
			r, err := result.Read(filepath.Join(dir, name))
			require.NoError(t, err)
			require.Equal(t, []string{addr}, r.Setup.Targets)
		}
	})
}

func TestStallRefusesAProcessOfAnotherServer(t *testing.T) {
	addr := testserver.Serve(t, testserver.Reap(time.Minute, ""))
	var out, errs syncbuf.Buffer
	sleep := exec.Command("sleep", "60")
	require.NoError(t, sleep.Start())
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	require.Equal(t, exitUsage, execute(t.Context(), []string{"stall", "--target", addr, "--pid", strconv.Itoa(sleep.Process.Pid)}, &out, &errs))
	require.Contains(t, errs.String(), "this process has no listening socket of "+addr)
}

// TestInterruptedStallContinuesTheServer ends a run while its server is stopped.
func TestInterruptedStallContinuesTheServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan bool, 1)
	go func() {
		defer cancel()
		for range 1000 {
			time.Sleep(20 * time.Millisecond)
			for _, pid := range children() {
				status, _ := os.ReadFile(filepath.Join("/proc", pid, "status"))
				if strings.Contains(string(status), "T (stopped)") {
					stopped <- true
					return
				}
			}
		}
		stopped <- false
	}()
	began := time.Now()
	f := command(t, ctx, "stall -c 20 --timeout 1s --heartbeat 200ms --stall 10m --server "+echoServer())
	require.True(t, <-stopped)
	require.Equal(t, exitInterrupted, f.code)
	require.Less(t, time.Since(began), exitTimeout, "the server has ended in an orderly way")
	require.Contains(t, f.out, "output of a server: stopped:")
}

func TestEndingSignals(t *testing.T) {
	require.Subset(t, endingSignals(), []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT})
	require.Equal(t, !signal.Ignored(syscall.SIGHUP), slices.Contains(endingSignals(), os.Signal(syscall.SIGHUP)), "nohup")
}

func TestProgressFitsTheTerminal(t *testing.T) {
	for _, width := range []int{0, 20, 59, 200} {
		var out syncbuf.Buffer
		p := &progress{out: &out, width: func() int { return width }}
		p.update([]result.Sample{{Open: 1_000_000}}, "silent", &result.Group{Lost: 5, OpenFailed: 3}, time.Second, 2*time.Second)
		line, found := strings.CutPrefix(out.String(), "\r\x1b[K")
		require.True(t, found)
		require.LessOrEqual(t, len(line), max(width-1, 0))
		require.NotContains(t, line, "\n")
		require.Equal(t, width == 200, strings.HasSuffix(line, "3 not opened"))
	}
}
