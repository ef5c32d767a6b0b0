package idle

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/engine"
)

func init() { runChild = runPlay }

// A play is a server that runs in a child process with a witness as its handler. Tests that stop
// the server each add one to plays.
type play struct {
	cfg  Config
	act  func(w *witness, c gnet.Conn, b []byte) // called by OnTraffic; may be nil
	open func(w *witness, c gnet.Conn)           // called by OnOpen; may be nil
}

// plays are the servers that a child process can run. Each file adds its own.
var plays = map[string]play{}

// A trace is the record of a witness about one connection. Instants are those of monotonic, 0 if
// the event has not happened.
type trace struct {
	Peer    string // address
	Opened  int64
	Reads   []int64 // calls of OnTraffic
	Closed  int64
	Arrived int64 // the last byte of the peer reached the kernel, at the end of the connection
	Reaped  bool
	Reason  string // if Reaped
	Message string // of the error that OnClose got
}

// An account is the report of a child about its connections, which a stage reads.
type account struct {
	Traces []trace // in the order in which the connections were opened
	Stats  struct{ SparedUnread uint64 }
}

// monotonic returns the clock that all processes of a machine share, in nanoseconds.
func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

// A witness is the handler of a play, and keeps traces of its connections for the account.
type witness struct {
	*echo
	play   play
	reaper *Reaper

	mu     sync.Mutex
	traces []*trace // guarded by mu, including the traces themselves
}

func newWitness(p play) *witness {
	w := &witness{echo: newEcho(), play: p}
	w.echo.open = func(c gnet.Conn) ([]byte, gnet.Action) {
		tr := &trace{Peer: c.RemoteAddr().String(), Opened: monotonic()}
		c.SetContext(tr)
		w.mu.Lock()
		w.traces = append(w.traces, tr)
		w.mu.Unlock()
		if p.open != nil {
			p.open(w, c)
		}
		return nil, gnet.None
	}
	w.echo.traffic = func(c gnet.Conn) gnet.Action {
		w.note(c, func(tr *trace) { tr.Reads = append(tr.Reads, monotonic()) })
		b, _ := c.Next(-1)
		if p.act != nil {
			p.act(w, c, b)
		}
		return gnet.None
	}
	w.echo.closed = func(c gnet.Conn, err error) gnet.Action {
		w.note(c, func(tr *trace) {
			tr.Closed = monotonic()
			tr.Arrived = tr.Closed - int64(sinceLastByte(c))
			if err != nil {
				tr.Message = err.Error()
			}
			var reason *ReapError
			if errors.As(err, &reason) {
				tr.Reaped, tr.Reason = true, reason.Reason.Error()
			}
		})
		return gnet.None
	}
	return w
}

// sinceLastByte asks the kernel how long ago the last byte of a peer arrived in order.
func sinceLastByte(c gnet.Conn) time.Duration {
	info, err := unix.GetsockoptTCPInfo(c.Fd(), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil { // a unix socket
		return 0
	}
	return time.Duration(info.Last_data_recv) * time.Millisecond
}

// note calls a function that changes the trace of a connection.
func (w *witness) note(c gnet.Conn, change func(*trace)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(c.Context().(*trace))
}

func (w *witness) account() (a account) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, tr := range w.traces {
		a.Traces = append(a.Traces, *tr)
	}
	a.Stats.SparedUnread = w.reaper.Stats().SparedUnread
	return a
}

// runPlay is the main function of a child process, a server with two loops. Its argument is the
// name of a play and an address. It prints its address, and for each line of its standard input an
// account.
func runPlay(arg string) {
	space := strings.LastIndexByte(arg, ' ')
	w := newWitness(plays[arg[:space]])
	var err error
	if w.reaper, err = Middleware(w, w.play.cfg); err != nil {
		panic(err)
	}
	ended := make(chan struct{})
	go func() {
		if err := gnet.Run(w.reaper, arg[space+1:], gnet.WithLogger(engine.Quiet{}), gnet.WithNumEventLoop(2)); err != nil {
			panic(err)
		}
		close(ended)
	}()
	up := <-w.booted
	fmt.Println(up.Addr.Network(), up.Addr.String())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := json.NewEncoder(os.Stdout).Encode(w.account()); err != nil {
			panic(err)
		}
	}
	_ = up.Engine.Stop(context.Background())
	<-ended
}

// A stage is a child process that runs a play. The test pauses and resumes it, and asks it for
// accounts.
type stage struct {
	t        testing.TB
	cmd      *exec.Cmd
	addr     net.Addr
	stdin    io.WriteCloser
	accounts *json.Decoder // from its standard output
	stderr   *strings.Builder
	paused   time.Time
}

func startPlay(t testing.TB, name, addr string) *stage {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	s := &stage{t: t, cmd: exec.Command(exe), stderr: new(strings.Builder)}
	s.cmd.Env, s.cmd.Stderr = append(os.Environ(), childEnv+"="+name+" "+addr), s.stderr
	s.stdin, err = s.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	stdout := bufio.NewReader(out)
	s.accounts = json.NewDecoder(stdout)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	var network, address string
	_, err = fmt.Fscan(stdout, &network, &address)
	require.NoError(t, err, "the child must print its address; it printed: %s", s.stderr)
	if network == "unix" {
		s.addr = &net.UnixAddr{Name: address, Net: network}
	} else {
		s.addr, err = net.ResolveTCPAddr(network, address)
		require.NoError(t, err)
	}
	return s
}

// account asks the child for its report. The child must not be stopped.
func (s *stage) account() (a account) {
	s.t.Helper()
	_, err := s.stdin.Write([]byte("\n"))
	require.NoError(s.t, err)
	require.NoError(s.t, s.accounts.Decode(&a), "%s", s.stderr)
	return a
}

// await waits until the accounts of the child meet a condition, and returns the last one.
func (s *stage) await(what string, cond func(account) bool) (a account) {
	s.t.Helper()
	for until := time.Now().Add(30 * time.Second); ; {
		if a = s.account(); cond(a) {
			return a
		}
		if time.Now().After(until) {
			require.Fail(s.t, "not within 30 s: "+what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// awaitOpen waits until n connections have been opened.
func (s *stage) awaitOpen(n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d connections are open", n), func(a account) bool { return len(a.Traces) >= n })
}

// pause stops the process, and returns when all threads are stopped.
func (s *stage) pause() {
	s.t.Helper()
	s.paused = time.Now()
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGSTOP))
	eventually(s.t, "the process is stopped", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		if err != nil {
			return false
		}
		_, state, _ := strings.Cut(string(b), ") ")
		return strings.HasPrefix(state, "T")
	})
}

// resume continues the process when the given time since pause has passed.
func (s *stage) resume(after time.Duration) {
	s.t.Helper()
	time.Sleep(time.Until(s.paused.Add(after)))
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGCONT))
}

// end ends the child, which must succeed.
func (s *stage) end() {
	s.t.Helper()
	require.NoError(s.t, s.stdin.Close())
	require.NoError(s.t, s.cmd.Wait(), "%s", s.stderr)
}

// reaped returns the traces of reaped connections for which cond holds.
func (a account) reaped(cond func(trace) bool) (reaped []trace) {
	for _, tr := range a.Traces {
		if tr.Reaped && cond(tr) {
			reaped = append(reaped, tr)
		}
	}
	return reaped
}

// closed returns the number of closed connections.
func (a account) closed() (n int) {
	for _, tr := range a.Traces {
		if tr.Closed != 0 {
			n++
		}
	}
	return n
}

// by returns the traces by the addresses of the peers.
func (a account) by() map[string]trace {
	traces := map[string]trace{}
	for _, tr := range a.Traces {
		traces[tr.Peer] = tr
	}
	return traces
}

// part returns the smallest value that is at least as large as the given part of the values.
func part(values []time.Duration, of float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(of*float64(len(sorted))), len(sorted)-1)]
}
