package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClientsThatNeverReadDoNotTakeTheMemory has clients that send requests as fast as they can and
// read nothing. When the server resets a client, it comes back.
func TestClientsThatNeverReadDoNotTakeTheMemory(t *testing.T) {
	for _, clients := range []int{4, 400} {
		t.Run(fmt.Sprint(clients), func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", "256MiB")
			p, _, addr := startServeInto(t, false, "--log-level", "error")
			requireBoundedMemory(t, p, addr, clients, 300<<20)
		})
	}
}

// TestTheTotalBoundsTheMemoryToo leaves out the limit of each connection.
func TestTheTotalBoundsTheMemoryToo(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "256MiB")
	p, _, addr := startServeInto(t, false, "--log-level", "error", "--output-limit", "0")
	requireBoundedMemory(t, p, addr, 40, 300<<20)
}

// requireBoundedMemory floods a server with clients that never read, while others measure how soon
// they are answered.
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
	if !raceDetector { // it takes memory and time of its own
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

// othersEnv has the address and the end of the round trips of a process that startOthers starts.
const othersEnv = "IDLEWHEEL_TEST_OTHERS"

// startOthers starts a process with clients that send a line every 5 ms and wait for the answer.
// Goroutines of this process would wait for those of the attackers. The result waits for the
// process, and returns the times until the answers, in ascending order.
func startOthers(t *testing.T, addr string, until time.Time) (times func() []time.Duration) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, "-test.run", "^TestOthers$", "-test.v")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", othersEnv, addr, until.UnixNano()))
	result := make(chan []byte, 1)
	go func() {
		out, _ := cmd.CombinedOutput()
		result <- out
	}()
	return func() (all []time.Duration) {
		t.Helper()
		out := <-result
		for line := range strings.Lines(string(out)) {
			if text, ok := strings.CutPrefix(line, othersEnv); ok {
				require.NoError(t, json.Unmarshal([]byte(text), &all))
			}
		}
		require.NotEmpty(t, all, "%s", out)
		slices.Sort(all)
		return all
	}
}

// TestOthers is the process of startOthers.
func TestOthers(t *testing.T) {
	var addr string
	var end int64
	if n, _ := fmt.Sscan(os.Getenv(othersEnv), &addr, &end); n < 2 {
		t.Skip("is started by other tests")
	}
	var clients sync.WaitGroup
	times := make([][]time.Duration, 4)
	for i := range times {
		clients.Go(func() {
			var err error
			if times[i], err = roundTrips(addr, time.Unix(0, end), 5*time.Millisecond); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
	text, err := json.Marshal(slices.Concat(times...))
	require.NoError(t, err)
	fmt.Printf("\n%s%s\n", othersEnv, text)
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
