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

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/testing/prober"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

const (
	commandEnv = "IDLEWHEEL_TEST_COMMAND" // the process is the command
	clientsEnv = "IDLEWHEEL_TEST_CLIENTS" // the process is many clients
	othersEnv  = "IDLEWHEEL_TEST_OTHERS"  // the process is the clients of startOthers
)

func init() {
	children = map[string]func(string){
		commandEnv: func(string) { main() }, clientsEnv: runClients, othersEnv: runOthers,
	}
}

// A process is a child of a test. It is killed when the test ends.
type process struct {
	*exec.Cmd
	stdout *bufio.Scanner
	stderr *syncbuf.Buffer
}

// startProcess starts this test binary as a child with a variable of the environment.
func startProcess(t testing.TB, env string, args ...string) *process {
	t.Helper()
	return startProcessInto(t, nil, env, args...)
}

// startProcessInto is startProcess with an output for another reader, unless it is nil.
func startProcessInto(t testing.TB, output *os.File, env string, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &process{Cmd: exec.Command(exe, args...), stderr: &syncbuf.Buffer{}}
	p.Env = append(os.Environ(), env, "GORACE=atexit_sleep_ms=0") // otherwise a race build waits 1 s
	if output != nil {
		p.Stdout, p.Stderr = output, output
	} else {
		p.Stderr = p.stderr
		out, err := p.StdoutPipe()
		require.NoError(t, err)
		p.stdout = bufio.NewScanner(out)
		p.stdout.Buffer(nil, 1<<24)
	}
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

// line returns the next line of the output of the process.
func (p *process) line(t testing.TB) string {
	t.Helper()
	require.True(t, p.stdout.Scan(), "another line of %v: %s", p.Args, p.stderr)
	return p.stdout.Text()
}

// exitCode waits for the end of the process.
func (p *process) exitCode(t testing.TB, within time.Duration) int {
	t.Helper()
	late := time.AfterFunc(within, func() { _ = p.Process.Kill() })
	_ = p.Wait()
	require.True(t, late.Stop(), "the process has not ended after %v: %s", within, p.stderr)
	return p.ProcessState.ExitCode()
}

// startServe starts serve in a process of its own, and returns the address of the server.
func startServe(t testing.TB, flags ...string) (p *process, addr string) {
	t.Helper()
	p = startProcess(t, commandEnv+"=1", append([]string{"serve"}, flags...)...)
	listening := regexp.MustCompile(`^listening on (\S+),`).FindStringSubmatch(p.line(t))
	require.NotNil(t, listening, p.stdout.Text())
	return p, listening[1]
}

// manyClients is the configuration of a process of clients.
type manyClients struct {
	Addr       string
	Busy, Idle int // number of clients
}

// An outcome is what a process of clients prints at its end.
type outcome struct {
	Late    time.Duration // of the process itself, at most
	Endings []ending
}

// An ending is the end of one connection.
type ending struct {
	Busy   bool
	At     time.Time // of the close
	Reason string    // the last line from the server, or an error
}

// sendInterval is the interval at which a busy client sends a line.
const sendInterval = 500 * time.Millisecond

// runClients is the main function of a process of clients. It prints a line when all are connected.
func runClients(config string) {
	var cfg manyClients
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		panic(err)
	}
	late, endings := fair.MeasureDelay(), make([]ending, cfg.Busy+cfg.Idle)
	var clients sync.WaitGroup
	for i := range endings {
		c, err := net.DialTimeout("tcp", cfg.Addr, 20*time.Second)
		if err != nil {
			panic(err)
		}
		end := &endings[i]
		end.Busy = i < cfg.Busy
		clients.Go(func() { end.Reason, end.At = lastLine(c), time.Now() })
		if end.Busy {
			go func() { // ends when the connection is closed
				time.Sleep(time.Duration(i) * time.Millisecond % sendInterval)
				for err == nil {
					_, err = c.Write([]byte("hello\n"))
					time.Sleep(sendInterval)
				}
			}()
		}
	}
	os.Stdout.WriteString("connected\n")
	clients.Wait()
	_ = json.NewEncoder(os.Stdout).Encode(outcome{late(), endings})
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

// TestSigtermDrains drains two servers that share a port. Each server, and each half of the
// clients, is a process of its own. IDLEWHEEL_DRAIN is the number of busy clients per server, and
// also of idle ones. With a limit of 20,000 descriptors per process it can be 5,000.
func TestSigtermDrains(t *testing.T) {
	t.Parallel()
	fair.Try(t, func(t testing.TB) {
		const (
			servers = 2
			delay   = 500 * time.Millisecond
			spread  = 2 * time.Second
			timeout = 5 * time.Second
			bucket  = 100 * time.Millisecond
		)
		each := needs.Connections(t, 500, 100, 4) // a server may get most of them
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
		probing := prober.Start(t, addr)
		time.Sleep(sendInterval + 500*time.Millisecond) // the silent clients are idle then
		began := time.Now()
		for _, p := range serving {
			require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		}
		for _, p := range serving {
			require.Zero(t, p.exitCode(t, delay+timeout+10*time.Second))
		}
		took := time.Since(began)
		t.Logf("%d servers ended after %v", servers, took.Round(time.Millisecond))

		served, _ := probing.End().Split([]prober.Span{{To: began.Add(delay - bucket)}})
		t.Logf("before the drain: %v", served)
		require.NotEmpty(t, served)
		require.Zero(t, served.Failed())
		require.Less(t, served.Quantile(0.99), time.Second)

		closes := map[bool][]time.Duration{} // of the busy and the idle, since began
		cut := 0
		for _, p := range clients {
			var got outcome
			require.NoError(t, json.Unmarshal([]byte(p.line(t)), &got))
			if got.Late > fair.Late { // as the servers may have been
				fair.Excuse(t, "clients were late by %v", got.Late)
			}
			for _, end := range got.Endings {
				closes[end.Busy] = append(closes[end.Busy], end.At.Sub(began))
				if !strings.HasPrefix(end.Reason, "closing: drained") {
					// If bytes of a busy client cross the close, the kernel resets the connection, and
					// the goodbye is lost.
					require.True(t, end.Busy && strings.Contains(end.Reason, "reset"), "%+v", end)
					cut++
				}
			}
		}
		require.Less(t, took, delay+timeout)
		t.Logf("%d of %d busy clients sent a line at the moment of the close, and were reset", cut, servers*each)
		requireSpread(t, "idle", closes[false], servers*each, delay, delay+spread, bucket)
		requireSpread(t, "busy", closes[true], servers*each, delay+spread, delay+timeout, bucket)
	})
}

// requireSpread checks that n closes are spread over the time between two instants: each bucket has
// at most twice the mean.
func requireSpread(t testing.TB, name string, closes []time.Duration, n int, from, to, bucket time.Duration) {
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
		c := sockets.Dial(t, "tcp", addr)
		_, err := c.Write([]byte("PING\n"))
		require.NoError(t, err)
		_, err = c.Read(make([]byte, 16))
		require.NoError(t, err, "it is open")
		require.NoError(t, p.Process.Signal(sig))
		require.Contains(t, p.line(t), "stopping:")
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		require.Contains(t, p.line(t), "stopped: 1 connections")
		require.Zero(t, p.exitCode(t, 20*time.Second))
	}
}

// TestTheSecondSignalMayFollowAtOnce sends both signals before the process has handled the first.
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
	require.Regexp(t, `at most \d+ connections \(\d+ descriptors allowed, less \d+ in use`, p.stdout.Text(), "the limit and its reason")
	taken := startProcess(t, commandEnv+"=1", "serve", "--addr", addr)
	require.Equal(t, 1, taken.exitCode(t, 20*time.Second))
	require.Contains(t, taken.stderr.String(), "address already in use")
	wrong := startProcess(t, commandEnv+"=1", "serve", "--loops", "many")
	require.Equal(t, 2, wrong.exitCode(t, 20*time.Second))
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	require.Contains(t, p.line(t), "not reloaded: there is no file of limits to read again")
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Contains(t, p.line(t), "stopped: ")
	require.Zero(t, p.exitCode(t, 20*time.Second))
}
