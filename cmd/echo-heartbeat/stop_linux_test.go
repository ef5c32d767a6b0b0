package main

import (
	"bufio"
	"encoding/json"
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

	"github.com/idlewheel/idlewheel/internal/prober"
	"github.com/idlewheel/idlewheel/internal/syncbuf"
)

const (
	commandEnv = "IDLEWHEEL_TEST_COMMAND" // the process is the command
	clientsEnv = "IDLEWHEEL_TEST_CLIENTS" // the process is many clients
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(commandEnv) != "":
		main()
	case os.Getenv(clientsEnv) != "":
		runClients(os.Getenv(clientsEnv))
	default:
		runTests(m)
	}
}

// A process is a child of a test. It is killed when the test ends.
type process struct {
	*exec.Cmd
	stdout *bufio.Scanner
	stderr *syncbuf.Buffer
}

// startProcess starts this test binary as something else.
func startProcess(t *testing.T, env string, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &process{Cmd: exec.Command(exe, args...), stderr: &syncbuf.Buffer{}}
	p.Env = append(os.Environ(), env, "GORACE=atexit_sleep_ms=0") // the race detector waits a second otherwise
	p.Stderr = p.stderr
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	p.stdout = bufio.NewScanner(out)
	p.stdout.Buffer(nil, 1<<24)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

// line returns the next line that the process prints.
func (p *process) line(t *testing.T) string {
	t.Helper()
	require.True(t, p.stdout.Scan(), "another line of %v: %s", p.Args, p.stderr)
	return p.stdout.Text()
}

// exitCode waits for the process to end by itself.
func (p *process) exitCode(t *testing.T, within time.Duration) int {
	t.Helper()
	late := time.AfterFunc(within, func() { _ = p.Process.Kill() })
	_ = p.Wait()
	require.True(t, late.Stop(), "it has not ended after %v: %s", within, p.stderr)
	return p.ProcessState.ExitCode()
}

// startServe starts serve in a process of its own and returns the address that it prints.
func startServe(t *testing.T, flags ...string) (p *process, addr string) {
	t.Helper()
	p = startProcess(t, commandEnv+"=1", append([]string{"serve"}, flags...)...)
	listening := regexp.MustCompile(`^listening on (\S+),`).FindStringSubmatch(p.line(t))
	require.NotNil(t, listening, p.stdout.Text())
	return p, listening[1]
}

// What clients are, and what they tell when all of them are closed.
type (
	manyClients struct {
		Addr       string
		Busy, Idle int
	}
	ending struct {
		Busy   bool
		At     time.Time // when it was closed
		Reason string    // the last line that it was sent, or an error
	}
)

// beat is how often a busy client sends something.
const beat = 500 * time.Millisecond

// runClients is the main function of a process of many clients. It says when all are connected.
func runClients(config string) {
	var cfg manyClients
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		panic(err)
	}
	endings := make([]ending, cfg.Busy+cfg.Idle)
	var clients sync.WaitGroup
	for i := range endings {
		c, err := net.DialTimeout("tcp", cfg.Addr, 20*time.Second)
		if err != nil {
			panic(err)
		}
		of := &endings[i]
		of.Busy = i < cfg.Busy
		clients.Go(func() { of.Reason, of.At = lastLine(c), time.Now() })
		if of.Busy {
			go func() { // until it is closed
				time.Sleep(time.Duration(i) * time.Millisecond % beat)
				for err == nil {
					_, err = c.Write([]byte("beat\n"))
					time.Sleep(beat)
				}
			}()
		}
	}
	os.Stdout.WriteString("connected\n")
	clients.Wait()
	_ = json.NewEncoder(os.Stdout).Encode(endings)
}

// lastLine reads a connection to its end.
func lastLine(c net.Conn) (last string) {
	lines := bufio.NewReaderSize(c, 128)
	for {
		line, err := lines.ReadString('\n')
		switch {
		case err == io.EOF:
			return last
		case err != nil:
			return err.Error()
		}
		last = strings.TrimSpace(line)
	}
}

// TestSigtermDrains lets servers that share a port go, each in a process of its own with as many clients in another. A process has no
// descriptors for ten thousand of both kinds where they are limited to 20,000: then IDLEWHEEL_DRAIN=5000 means 5,000 busy and as many idle
// ones for each of two servers.
func TestSigtermDrains(t *testing.T) {
	const (
		servers = 2
		delay   = 500 * time.Millisecond
		spread  = 4 * time.Second
		timeout = 8 * time.Second
		bucket  = 100 * time.Millisecond
	)
	each := 1000
	if n, err := strconv.Atoi(os.Getenv("IDLEWHEEL_DRAIN")); err == nil {
		each = n
	}
	addr := "127.0.0.1:0"
	var serving, clients []*process
	for range servers {
		var p *process
		p, addr = startServe(t, "--addr", addr, "--share-port", "--loops", "1", "--read-timeout", "5m", "--tick", "20ms",
			"--drain-delay", delay.String(), "--drain-spread", spread.String(), "--drain-timeout", timeout.String())
		serving = append(serving, p)
	}
	for range servers {
		config, err := json.Marshal(manyClients{Addr: addr, Busy: each, Idle: each})
		require.NoError(t, err)
		clients = append(clients, startProcess(t, clientsEnv+"="+string(config)))
	}
	for _, p := range clients {
		require.Equal(t, "connected", p.line(t))
	}
	probing := prober.Start(addr)
	time.Sleep(2 * time.Second) // the silent are idle
	began := time.Now()
	for _, p := range serving {
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	}
	for _, p := range serving {
		require.Zero(t, p.exitCode(t, delay+timeout+10*time.Second))
	}
	took := time.Since(began)
	t.Logf("%d servers ended after %v", servers, took.Round(time.Millisecond))
	require.Less(t, took, delay+timeout)

	served, _ := probing.End().Split([]prober.Span{{To: began.Add(delay - bucket)}})
	t.Logf("before the drain: %v", served)
	require.NotEmpty(t, served)
	require.Zero(t, served.Failed())
	require.Less(t, served.Quantile(0.99), time.Second)

	closes := map[bool][]time.Duration{} // of the busy and the idle, since began
	cut := 0
	for _, p := range clients {
		var endings []ending
		require.NoError(t, json.Unmarshal([]byte(p.line(t)), &endings))
		for _, of := range endings {
			closes[of.Busy] = append(closes[of.Busy], of.At.Sub(began))
			if !strings.HasPrefix(of.Reason, "closing: drained") {
				// Bytes of the busy may cross the close: then the system resets what was not read yet, the last words included.
				require.True(t, of.Busy && strings.Contains(of.Reason, "reset"), "%+v", of)
				cut++
			}
		}
	}
	t.Logf("%d of %d busy ones sent something in that moment, and were reset", cut, servers*each)
	requireSpread(t, "idle", closes[false], servers*each, delay, delay+spread, bucket)
	requireSpread(t, "busy", closes[true], servers*each, delay+spread, delay+timeout, bucket)
}

// requireSpread checks that n closes are spread over a time, with at most twice the mean in each bucket.
func requireSpread(t *testing.T, name string, closes []time.Duration, n int, from, to, bucket time.Duration) {
	t.Helper()
	require.Len(t, closes, n)
	require.GreaterOrEqual(t, slices.Min(closes), from)
	require.LessOrEqual(t, slices.Max(closes), to+time.Second)
	buckets := map[time.Duration]int{}
	most := 0
	for _, at := range closes {
		buckets[at/bucket]++
		most = max(most, buckets[at/bucket])
	}
	mean := float64(n) * float64(bucket) / float64(to-from)
	t.Logf("%s: %d closed from %v to %v, at most %d in %v, %.2f of the mean", name, n, slices.Min(closes).Round(time.Millisecond),
		slices.Max(closes).Round(time.Millisecond), most, bucket, float64(most)/mean)
	assert.LessOrEqual(t, float64(most), 2*mean, name)
}

func TestASecondSignalStopsAtOnce(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		p, addr := startServe(t, "--addr", "127.0.0.1:0", "--drain-delay", "1h")
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, p.Process.Signal(sig))
		require.Contains(t, p.line(t), "stopping:")
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		require.Contains(t, p.line(t), "stopped: 1 connections")
		require.Zero(t, p.exitCode(t, 20*time.Second))
	}
}

// TestTheSecondSignalMayFollowAtOnce sends both before the process has come to see the first.
func TestTheSecondSignalMayFollowAtOnce(t *testing.T) {
	for range 5 {
		p, _ := startServe(t, "--addr", "127.0.0.1:0", "--drain-delay", "1h")
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		require.NoError(t, p.Process.Signal(os.Interrupt))
		require.Zero(t, p.exitCode(t, 20*time.Second))
	}
}

func TestExitCodes(t *testing.T) {
	p, addr := startServe(t, "--addr", "127.0.0.1:0")
	require.Regexp(t, `at most \d+ connections \(\d+ descriptors allowed, less \d+ in use`, p.stdout.Text(), "the limit, and why")
	taken := startProcess(t, commandEnv+"=1", "serve", "--addr", addr)
	require.Equal(t, 1, taken.exitCode(t, 20*time.Second))
	require.Contains(t, taken.stderr.String(), "address already in use")
	wrong := startProcess(t, commandEnv+"=1", "serve", "--loops", "many")
	require.Equal(t, 2, wrong.exitCode(t, 20*time.Second))
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	require.Contains(t, p.line(t), "not reloaded: serve was started without")
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Contains(t, p.line(t), "stopped: ")
	require.Zero(t, p.exitCode(t, 20*time.Second))
}
