package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/testing/prober"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

// A flooded is the configuration of a child process of a flood test.
type flooded struct {
	Descriptors    uint64 // RLIMIT_NOFILE
	MaxConnections int
	Taken          int // descriptors that other parts of the process take once the server runs
}

func init() { runChild = runFlooded }

// runFlooded is the main function of a child process: an echo server that ends with its standard
// input.
func runFlooded(child string) {
	var f flooded
	if err := json.Unmarshal([]byte(child), &f); err != nil {
		panic(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: f.Descriptors, Max: f.Descriptors}); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	err := run(ctx, Config{
		Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, NumEventLoop: 2,
		Idle:   idle.Config{ReadTimeout: time.Minute, MaxConnections: f.MaxConnections},
		Logger: logTo(os.Stderr),
		OnStarted: func(s *Server) {
			for range f.Taken {
				if _, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
					panic(err)
				}
			}
			fmt.Println(s.Addr())
		},
	})
	fmt.Println(errors.Is(err, ErrTooFewDescriptors), err)
}

// A floodedChild is a child process of a flood test.
type floodedChild struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	stdin io.Closer
	log   *syncbuf.Buffer
	addr  string
}

func startFlooded(t testing.TB, f flooded) *floodedChild {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	env, err := json.Marshal(f)
	require.NoError(t, err)
	c := &floodedChild{cmd: exec.Command(exe), log: &syncbuf.Buffer{}}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(env))
	c.cmd.Stderr = c.log
	c.stdin, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	c.lines = bufio.NewScanner(out)
	require.True(t, c.lines.Scan(), "it prints its address: %s", c.log)
	c.addr = c.lines.Text()
	return c
}

// end ends the child and returns the result of Run.
func (c *floodedChild) end(t testing.TB) string {
	t.Helper()
	require.NoError(t, c.stdin.Close())
	require.True(t, c.lines.Scan())
	return c.lines.Text()
}

// flood dials n connections at once and keeps them until the caller calls end.
func flood(t testing.TB, addr string, n int) (end func()) {
	t.Helper()
	to, err := net.ResolveTCPAddr("tcp4", addr)
	require.NoError(t, err)
	var fds []int
	for range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		require.NoError(t, err)
		fds = append(fds, fd)
		if err := unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}); err != nil {
			require.ErrorIs(t, err, syscall.EINPROGRESS)
		}
	}
	return func() {
		for _, fd := range fds {
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			_ = unix.Close(fd)
		}
	}
}

// requireAccepts waits until a server accepts and answers, for at most a second. It dials often,
// because the kernel retries a dropped attempt after a second only.
func requireAccepts(t testing.TB, addr string) {
	t.Helper()
	began := time.Now()
	for {
		c, err := net.DialTimeout("tcp", addr, 50*time.Millisecond)
		if err == nil {
			err = pingPong(c, time.Second)
			c.Close()
		}
		took := time.Since(began)
		if err == nil {
			t.Logf("the first is served %v after the flood", took)
		}
		if err == nil || took > time.Second {
			require.LessOrEqual(t, took, time.Second, "accepting again: %v", err)
			return
		}
	}
}

// requireProbesServed checks the probes during floods and between them. A probe during a flood
// competes with thousands for the room that there is. If it is dropped, the kernel retries after
// one second and after three, and most probes are served then.
func requireProbesServed(t testing.TB, probes prober.Probes, floods []prober.Span) {
	t.Helper()
	during, between := probes.Split(floods)
	t.Logf("during a flood: %v", during)
	t.Logf("between them: %v", between)
	require.NotEmpty(t, during)
	require.NotEmpty(t, between)
	require.LessOrEqual(t, during.Failed(), 1+len(during)/10)
	require.Zero(t, between.Failed())
	require.Less(t, between.Quantile(0.99), time.Second)
}

// TestFloods dials thousands of connections at once to a server with descriptors for a fraction of
// them. Active connections stay. After the flood a new client is served within a second.
func TestFloods(t *testing.T) {
	rounds, size := 1, 3000
	if needs.IsLong() {
		rounds, size = 3, 8000
	}
	if n, err := strconv.Atoi(os.Getenv("IDLEWHEEL_FLOODS")); err == nil {
		rounds = n
	}
	for _, tc := range []struct {
		name string
		flooded
	}{
		{"a limit of connections", flooded{Descriptors: 1000, MaxConnections: 800}},
		{"a limit of descriptors", flooded{Descriptors: 1000}},
		{"descriptors taken by something else", flooded{Descriptors: 17_000, Taken: 15_000}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			needs.Descriptors(t, max(size, int(tc.Descriptors)))
			server := startFlooded(t, tc.flooded)
			var over atomic.Bool
			var playing sync.WaitGroup
			defer playing.Wait()
			defer over.Store(true)
			for i := range 20 {
				c := sockets.Dial(t, "tcp", server.addr)
				playing.Go(func() {
					for !over.Load() {
						if !assert.NoError(t, pingPong(c, 20*time.Second), "active connection %d, log: %s", i, server.log) {
							return
						}
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
			probing := prober.Start(t, server.addr)
			var floods []prober.Span
			served, tried := 0, 0
			for range rounds {
				began := time.Now()
				end := flood(t, server.addr, size)
				time.Sleep(1500 * time.Millisecond)
				end()
				requireAccepts(t, server.addr)
				floods = append(floods, prober.Span{From: began, To: time.Now()})
				for range 100 {
					tried++
					c, err := net.DialTimeout("tcp", server.addr, 5*time.Second)
					if err == nil {
						if err = pingPong(c, 5*time.Second); err == nil {
							served++
						}
						c.Close()
					}
				}
				time.Sleep(time.Second) // a pause for the prober
			}
			over.Store(true)
			playing.Wait()
			t.Logf("%d of %d new clients were served", served, tried)
			requireProbesServed(t, probing.End(), floods)
			require.GreaterOrEqual(t, served, tried*99/100)
			require.Equal(t, "false <nil>", server.end(t), "the engine lives until it is asked to stop")
			require.NotContains(t, server.log.String(), "too many open files")
			if tc.Taken > 0 {
				require.Contains(t, server.log.String(), "descriptors are short")
				return
			}
			require.Contains(t, server.log.String(), "accepting is paused")
			require.Contains(t, server.log.String(), "accepting resumes")
		})
	}
}

// attacks are what clients without the token send, by name. An attack ends when its context does.
var attacks = map[string]func(context.Context, net.Conn){
	"silent":         sendAndRead(""),
	"half a header":  sendAndRead("GET /livez HTTP/1.1\r\nHost: local"),
	"kept alive":     sendAndRead("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"),
	"no body":        sendAndRead("GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"),
	"no large body":  sendAndRead("GET /readyz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999\r\n\r\n"),
	"no token":       sendAndRead("POST /api/timeouts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n"),
	"no options":     sendAndRead("OPTIONS * HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"),
	"slow header":    sendSlowly("GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ", "x"),
	"slow body":      sendSlowly("POST /api/timeouts HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n{\r\n"),
	"many requests":  sendSlowly("", strings.Repeat("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", 5)),
	"reads nothing":  sendOnly(strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 20)),
	"reads no frame": sendOnly("GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n"),
}

// sendOnly returns an attack that sends a text and reads nothing.
func sendOnly(text string) func(context.Context, net.Conn) {
	return func(ctx context.Context, c net.Conn) {
		_ = c.(*net.TCPConn).SetReadBuffer(1)
		_, _ = io.WriteString(c, text)
		<-ctx.Done()
	}
}

// sendAndRead returns an attack that sends a text, and then reads until the connection is closed.
func sendAndRead(text string) func(context.Context, net.Conn) {
	return func(_ context.Context, c net.Conn) {
		_, _ = io.WriteString(c, text)
		_, _ = io.Copy(io.Discard, c)
	}
}

// sendSlowly returns an attack that sends a text, and then another one again and again.
func sendSlowly(text, again string) func(context.Context, net.Conn) {
	return func(ctx context.Context, c net.Conn) {
		go func() { _, _ = io.Copy(io.Discard, c) }()
		for _, err := io.WriteString(c, text); err == nil && sleep(ctx, 50*time.Millisecond); {
			_, err = io.WriteString(c, again)
		}
	}
}

// A crowd is a number of attackers, and where they come from.
type crowd struct {
	size      int
	addresses string
}

// besiege runs an attack on an address until ctx is done. Each attacker has one connection at a
// time, and opens another one when it is closed.
func besiege(ctx context.Context, addr string, from crowd, attack func(context.Context, net.Conn)) (wait func()) {
	var attackers sync.WaitGroup
	for i := range from.size {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: map[string]net.IP{
			"one address": net.IPv4(127, 0, 1, 1), "many addresses": net.IPv4(127, 0, 2, byte(1+i)), "the address of the prober": net.IPv4(127, 0, 0, 1),
		}[from.addresses]}}
		attackers.Go(func() {
			for sleep(ctx, 10*time.Millisecond) {
				c, err := dialer.DialContext(ctx, "tcp", addr)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				attack(ctx, c)
				stop()
				_ = c.Close()
			}
		})
	}
	return attackers.Wait
}

// TestTheOperatorAlwaysGetsIn runs each attack from the address of the prober, and in its long form
// from another one and from many, while the prober asks for /livez and /readyz, and an operator
// lists connections, kicks one, and opens the page. If most clients have one address, each of them
// has 20 ms for its request: on a machine that starves the prober for longer, an attempt proves
// nothing.
func TestTheOperatorAlwaysGetsIn(t *testing.T) {
	before := goleak.IgnoreCurrent()
	srv, stop := startIn(t, Config{Idle: idle.Config{ReadTimeout: time.Hour}, Admin: Admin{Addr: "127.0.0.1:0", Token: testToken}})
	for name, attack := range attacks {
		crowds := []crowd{{70, "the address of the prober"}}
		if needs.IsLong() {
			crowds = append(crowds, crowd{70, "one address"}, crowd{70, "many addresses"})
		}
		if needs.IsLong() && name == "no body" {
			crowds = append(crowds, crowd{200, "one address"}, crowd{200, "many addresses"})
		}
		for _, from := range crowds {
			fair.Run(t, fmt.Sprintf("%s/%d of %s", name, from.size, from.addresses), func(t testing.TB) {
				ctx, end := context.WithCancel(t.Context())
				wait := besiege(ctx, srv.AdminAddr().String(), from, attack)
				defer wait()
				defer end()
				time.Sleep(100 * time.Millisecond) // until all have connected
				requireAnswers(ctx, t, srv)
			})
		}
	}
	stop()
	http.DefaultClient.CloseIdleConnections()
	goleak.VerifyNone(t, before)
}

// requireAnswers sends 65 probes, and what an operator asks with the token.
func requireAnswers(ctx context.Context, t testing.TB, srv *Server) {
	t.Helper()
	url := "http://" + srv.AdminAddr().String()
	probes, lists, kicks, why := 0, 0, 0, ""
	count := func(answered *int, want int, method, path, token string) (body string) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // that of the probes in deploy/
		defer cancel()
		status, body := ask(ctx, method, url+path, "", token)
		if status == want {
			*answered++
		} else {
			why = body
		}
		return body
	}
	for i := range 65 {
		count(&probes, 200, "GET", []string{"/livez", "/readyz"}[i%2], "")
		if i%13 == 0 {
			c := visit(t, srv.Addr())
			var list struct{ Connections []struct{ ID, Remote string } }
			_ = json.Unmarshal([]byte(count(&lists, 200, "GET", "/api/connections?sort=age", testToken)), &list)
			for _, listed := range list.Connections {
				if listed.Remote == c.LocalAddr().String() {
					count(&kicks, 204, "POST", "/api/connections/"+listed.ID+"/kick", testToken)
				}
			}
			c.Close()
		}
		time.Sleep(3 * time.Millisecond)
	}
	page := "the page got a frame"
	if err := view(ctx, url); err != nil {
		page = err.Error()
	}
	t.Logf("%d of 65 probes, %d of 5 lists, %d of 5 kicks; %s", probes, lists, kicks, page)
	if needs.RaceDetector && probes >= 62 { // the limits are times of the program without it
		probes = 65
	}
	require.Equal(t, []int{65, 5, 5}, []int{probes, lists, kicks}, "%s", why)
	require.Equal(t, "the page got a frame", page)
}

// view opens the stream of the page with the token, and returns nil when it has a frame.
func view(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", url+"/api/events", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%d: %s", resp.StatusCode, text)
	}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if lines.Text() == "event: frame" {
			return nil
		}
	}
	return fmt.Errorf("no frame within 5 s")
}
