package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/needs"
)

// TestClientsThatNeverReadDoNotTakeTheMemory has clients that send requests as fast as they can and
// read nothing. When the server resets a client, it comes back. Meanwhile others measure how soon
// they are answered. The total bounds the memory without a limit of each connection, too.
func TestClientsThatNeverReadDoNotTakeTheMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		clients int
		flags   []string
	}{
		"4 clients": {4, nil}, "400 clients": {400, nil}, "a total only": {40, []string{"--output-limit", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", "256MiB")
			p, _, addr := startServeInto(t, false, append(tc.flags, "--log-level", "error")...)
			requireBoundedMemory(t, p, addr, tc.clients, 300<<20)
		})
	}
}

func requireBoundedMemory(t *testing.T, p *process, addr string, clients, limit int) {
	t.Helper()
	dialServe(t, addr).Close()
	before := statusOf(t, p.Process.Pid, "VmHWM")
	until := time.Now().Add(floodTime())
	others := startOthers(t, addr, until)
	var attackers sync.WaitGroup
	opened := make([]int, clients)
	for i := range opened {
		attackers.Go(func() { opened[i] = neverRead(addr, until) })
	}
	times := others()
	attackers.Wait()
	after := statusOf(t, p.Process.Pid, "VmHWM")
	total := 0
	for _, n := range opened {
		total += n
	}
	t.Logf("%d clients, %d connections: VmHWM %d MB, %d MB before; %d answers to others, p50 %v, p99 %v, longest %v",
		clients, total, after>>20, before>>20, len(times), times[len(times)/2], times[len(times)*99/100], times[len(times)-1])
	if !needs.RaceDetector { // it takes memory and time of its own
		require.Less(t, after, limit)
		// Without other load on the machine, the p99 is less than 50 ms.
		require.Less(t, times[len(times)/2], time.Second)
	}
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.exitCode(t, 10*time.Second))
}

// neverRead sends requests and never reads, until an instant. It returns the number of connections
// that it needed.
func neverRead(addr string, until time.Time) (opened int) {
	requests := []byte(strings.Repeat(strings.Repeat("x", 63)+"\n", 1<<10))
	for time.Now().Before(until) {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		opened++
		_ = c.SetDeadline(until)
		for err == nil {
			_, err = c.Write(requests)
		}
		c.Close()
	}
	return opened
}

// startOthers starts a process with clients that send a line every 5 ms and wait for the answer.
// Goroutines of this process would wait for those of the attackers. The result waits for the
// process, and returns the times until the answers, in ascending order.
func startOthers(t *testing.T, addr string, until time.Time) (times func() []time.Duration) {
	t.Helper()
	p := startProcess(t, fmt.Sprintf("%s=%s %d", othersEnv, addr, until.UnixNano()))
	return func() (all []time.Duration) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(p.line(t)), &all))
		require.NotEmpty(t, all, "%s", p.stderr)
		slices.Sort(all)
		return all
	}
}

// runOthers is the main function of a process of startOthers.
func runOthers(config string) {
	var addr string
	var end int64
	if _, err := fmt.Sscan(config, &addr, &end); err != nil {
		panic(err)
	}
	var clients sync.WaitGroup
	times := make([][]time.Duration, 4)
	for i := range times {
		clients.Go(func() {
			var err error
			if times[i], err = roundTrips(addr, time.Unix(0, end), 5*time.Millisecond); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
	clients.Wait()
	_ = json.NewEncoder(os.Stdout).Encode(slices.Concat(times...))
}

// roundTrips sends lines until an instant, with a pause after each answer. It returns the times
// until the answers.
func roundTrips(addr string, until time.Time, pause time.Duration) (all []time.Duration, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	lines := bufio.NewReader(c)
	for time.Now().Before(until) {
		began := time.Now()
		_ = c.SetDeadline(began.Add(5 * time.Second))
		if _, err = c.Write([]byte("PING\n")); err == nil {
			_, err = lines.ReadString('\n')
		}
		if err != nil {
			return all, fmt.Errorf("%v before the end: %w", time.Until(until).Round(time.Millisecond), err)
		}
		all = append(all, time.Since(began))
		time.Sleep(pause)
	}
	return all, nil
}

// statusOf returns a size from /proc/PID/status in bytes.
func statusOf(t *testing.T, pid int, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == name+":" {
			kb, err := strconv.Atoi(words[1])
			require.NoError(t, err)
			return kb << 10
		}
	}
	t.Fatalf("no %s in the status of %d", name, pid)
	return 0
}
