package witness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

// serverVariable makes the test binary a server with this behaviour.
const serverVariable = "WITNESS_TEST_SERVER"

const idleTimeout = 2 * time.Second

func TestMain(m *testing.M) {
	if behaviour := os.Getenv(serverVariable); behaviour != "" {
		serve(behaviours[behaviour])
		return
	}
	_ = flag.Set("test.parallel", "16") // the tests mostly sleep
	goleak.VerifyTestMain(m)
}

// behaviours are the servers under watch. Each is called in a goroutine per connection, which is
// closed afterwards.
var behaviours = map[string]func(net.Conn){
	// deadline is faulty: after a stop of the process its deadline ends before the bytes are read.
	"deadline": func(c net.Conn) {
		_, _ = io.Copy(io.Discard, deadlineReader{c})
	},
	// careful reads what waits before it believes its deadline.
	"careful": func(c net.Conn) {
		for b := make([]byte, 100); ; {
			_ = c.SetReadDeadline(time.Now().Add(idleTimeout))
			_, err := c.Read(b)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				_, err = c.Read(b)
			}
			if err != nil {
				return
			}
		}
	},
	// forgetful never closes a silent connection.
	"forgetful": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
	// absolute has read all, and closes at the end of a time that bytes do not extend.
	"absolute": func(c net.Conn) {
		_ = c.SetReadDeadline(time.Now().Add(6*time.Second + rand.N(time.Second)))
		_, _ = io.Copy(io.Discard, c)
	},
	// polite closes after each message.
	"polite": func(c net.Conn) { _, _ = c.Read(make([]byte, 100)) },
}

type deadlineReader struct{ net.Conn }

func (d deadlineReader) Read(b []byte) (int, error) {
	_ = d.SetReadDeadline(time.Now().Add(idleTimeout))
	return d.Conn.Read(b)
}

// serve is the process of a server. It prints its port and ends with its standard input.
func serve(behaviour func(net.Conn)) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(ln.Addr().(*net.TCPAddr).Port)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				behaviour(c)
			}()
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// start starts a server process.
func start(t testing.TB, behaviour string) (server *os.Process, port int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverVariable+"="+behaviour, "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Wait()
	})
	_, err = fmt.Fscan(out, &port)
	require.NoError(t, err)
	return cmd.Process, port
}

// clients are peers with a count of their own. Half a second to one second is between heartbeats.
type clients struct {
	conns       []net.Conn
	running     sync.WaitGroup
	closedAlive atomic.Int64 // closed by the server within its timeout after a heartbeat
	closed      atomic.Int64
}

// dial opens connections. Each sends a number of heartbeats, -1 is any number.
func dial(t testing.TB, port, number, heartbeats int) *clients {
	t.Helper()
	var all clients
	for range number {
		c := sockets.Dial(t, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		all.conns = append(all.conns, c)
		var last atomic.Int64
		done := make(chan struct{})
		all.running.Go(func() {
			for sent := 0; sent != heartbeats; sent++ {
				last.Store(time.Now().UnixNano())
				if _, err := c.Write([]byte("heartbeat")); err != nil {
					return
				}
				select {
				case <-time.After(idleTimeout/4 + rand.N(idleTimeout/4)):
				case <-done:
					return
				}
			}
		})
		all.running.Go(func() {
			defer close(done)
			_, err := c.Read(make([]byte, 1))
			if errors.Is(err, net.ErrClosed) {
				return // by this client
			}
			all.closed.Add(1)
			if time.Since(time.Unix(0, last.Load())) < idleTimeout*9/10 {
				all.closedAlive.Add(1)
			}
			_ = c.Close()
		})
	}
	t.Cleanup(all.end)
	return &all
}

// end closes the connections.
func (c *clients) end() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.running.Wait()
}

// watch watches a port until during returns. The timeout is 0 if it is not known.
func watch(t testing.TB, port int, timeout time.Duration, during func()) *Report {
	t.Helper()
	c := Config{Ports: []int{port}, Every: 100 * time.Millisecond, Timeout: timeout}
	ctx, stop := context.WithCancel(t.Context())
	var r *Report
	var err error
	var watching sync.WaitGroup
	began := make(chan struct{})
	first := sync.OnceFunc(func() { close(began) })
	c.Progress = func(time.Duration, int, int) { first() }
	watching.Go(func() { r, err = Watch(ctx, c) })
	<-began
	during()
	stop()
	watching.Wait()
	require.NoError(t, err)
	t.Logf("%s", text(r))
	return r
}

func text(r *Report) string {
	var b strings.Builder
	r.Write(&b)
	return b.String()
}

// stall stops a server for one and a half of its timeouts.
func stall(t testing.TB, server *os.Process) {
	require.NoError(t, server.Signal(syscall.SIGSTOP))
	time.Sleep(idleTimeout * 3 / 2)
	require.NoError(t, server.Signal(syscall.SIGCONT))
	time.Sleep(time.Second)
}

func TestStalledServerClosesLivingConnections(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		server, port := start(t, "deadline")
		clients := dial(t, port, 300, -1)
		r := watch(t, port, 0, func() {
			time.Sleep(3 * time.Second)
			stall(t, server)
		})
		require.Equal(t, 300, r.Seen)
		truth := int(clients.closedAlive.Load())
		t.Logf("the clients count %d of 300", truth)
		require.Greater(t, truth, 30, "the server must be at fault for the test to mean anything")
		require.InDelta(t, truth, r.ClosedAlive(), 6)
		require.InDelta(t, truth, r.Verdicts[AliveUnread], 6)
		require.Contains(t, text(r), "no heartbeat would have saved")
	})
}

func TestCarefulServerClosesNoLivingConnection(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		server, port := start(t, "careful")
		living, silent := dial(t, port, 100, -1), dial(t, port, 50, 5)
		r := watch(t, port, 0, func() {
			time.Sleep(8 * time.Second)
			require.EqualValues(t, 50, silent.closed.Load())
			stall(t, server)
		})
		require.Zero(t, living.closed.Load())
		require.Zero(t, r.ClosedAlive())
		require.Zero(t, r.Verdicts[KeptDead])
		require.Equal(t, 50, r.Verdicts[Silence])
		require.Len(t, r.Open, 100)
		require.Greater(t, r.Timeout.Count, 40)
		require.InDelta(t, idleTimeout+100*time.Millisecond, r.Timeout.Median, float64(200*time.Millisecond))
		require.InDelta(t, 0.37*float64(time.Second), r.Enough, float64(100*time.Millisecond))
	})
}

func TestForgetfulServerKeepsDeadConnections(t *testing.T) {
	t.Parallel()
	// Without a timeout the rhythm of the peer tells.
	for _, timeout := range []time.Duration{idleTimeout, 0} {
		fair.RunParallel(t, timeout.String(), func(t testing.TB) {
			_, port := start(t, "forgetful")
			living := dial(t, port, 20, -1)
			dial(t, port, 30, 6)
			r := watch(t, port, timeout, func() { time.Sleep(12 * time.Second) })
			require.Equal(t, 30, r.Verdicts[KeptDead])
			require.Zero(t, r.ClosedAlive())
			require.Zero(t, r.Enough)
			require.Zero(t, living.closed.Load())
		})
	}
}

func TestCloseWithinRhythmIsAClosedLivingConnection(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		_, port := start(t, "absolute")
		clients := dial(t, port, 100, -1)
		r := watch(t, port, 0, func() { time.Sleep(8 * time.Second) })
		require.EqualValues(t, 100, clients.closed.Load())
		require.InDelta(t, 100, r.Verdicts[AliveRhythm]+r.Verdicts[AfterMessage], 10)
		require.Greater(t, r.Verdicts[AliveRhythm], 60, "a few are closed right after a message")
	})
}

func TestCloseAfterMessageIsNoFault(t *testing.T) {
	fair.Try(t, func(t testing.TB) {
		_, port := start(t, "polite")
		r := watch(t, port, 0, func() {
			clients := dial(t, port, 20, 0)
			time.Sleep(300 * time.Millisecond)
			for _, c := range clients.conns {
				_, _ = c.Write([]byte("bye"))
			}
			require.Eventually(t, func() bool { return clients.closed.Load() == 20 }, 20*time.Second, 10*time.Millisecond)
			time.Sleep(300 * time.Millisecond)
		})
		require.InDelta(t, 20, r.Verdicts[AfterMessage], 2, "a sample may come between a message and the close")
		require.Zero(t, r.ClosedAlive())
	})
}

func TestEndOfServerIsAShutdown(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		server, port := start(t, "forgetful")
		dial(t, port, 20, -1)
		r := watch(t, port, 0, func() {
			time.Sleep(3 * time.Second)
			require.NoError(t, server.Kill())
			time.Sleep(300 * time.Millisecond)
		})
		require.Equal(t, 20, r.Verdicts[Shutdown])
		require.Zero(t, r.ClosedAlive())
	})
}

// TestWhichSideClosed ends connections in every way.
func TestWhichSideClosed(t *testing.T) {
	t.Parallel()
	read := func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 10)) }
	write := func(c *net.TCPConn) {
		_, _ = c.Write([]byte("x"))
		time.Sleep(20 * time.Millisecond)
	}
	abort := func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() }
	// linger makes the kernel keep a closed socket, so that a byte for it is answered by an RST.
	linger := func(c *net.TCPConn) {
		raw, err := c.SyscallConn()
		require.NoError(t, err)
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_LINGER2, 100) })
	}
	// last does not sleep: a sample between a message and the end would see a living client.
	last := func(c *net.TCPConn) { _, _ = c.Write([]byte("x")); _ = c.Close() }
	for _, test := range []struct {
		name   string
		end    func(client, server *net.TCPConn)
		by     Verdict
		unread uint32
	}{
		{"server closes", func(c, s *net.TCPConn) { s.Close(); read(c); c.Close() }, byServer, 0},
		{"server closes, client does not", func(c, s *net.TCPConn) { s.Close() }, byServer, 0},
		{"server closes, client sends", func(c, s *net.TCPConn) { s.Close(); write(c) }, byServer, 0},
		{"server closes, client acknowledges and sends", func(c, s *net.TCPConn) { linger(s); s.Close(); time.Sleep(50 * time.Millisecond); write(c) }, byServer, 0},
		{"server closes, client aborts", func(c, s *net.TCPConn) { s.Close(); read(c); abort(c) }, byServer, 0},
		{"server closes with unread bytes", func(c, s *net.TCPConn) { write(c); s.Close() }, byServer, 1},
		{"server aborts", func(c, s *net.TCPConn) { abort(s) }, byServer, 0},
		{"server shuts its side down", func(c, s *net.TCPConn) { s.CloseWrite() }, byServer, 0},
		{"client closes", func(c, s *net.TCPConn) { c.Close(); read(s); s.Close() }, ByPeer, 0},
		{"client closes after a message", func(c, s *net.TCPConn) { write(c); c.Close(); read(s); read(s); s.Close() }, ByPeer, 0},
		{"client closes, server has unread bytes", func(c, s *net.TCPConn) { last(c); s.Close() }, ByPeer, 0},
		{"client aborts", func(c, s *net.TCPConn) { abort(c); read(s); s.Close() }, ByPeer, 0},
		{"client aborts, server has unread bytes", func(c, s *net.TCPConn) { _ = c.SetLinger(0); last(c); s.Close() }, ByPeer, 0},
		{"client aborts, server does not close", func(c, s *net.TCPConn) { abort(c) }, ByPeer, 0},
		{"client closes, server does not", func(c, s *net.TCPConn) { c.Close() }, HalfClosed, 0},
	} {
		fair.RunParallel(t, test.name, func(t testing.TB) {
			ln := sockets.Listen(t, "tcp", ":0") // of both address families
			client := sockets.Dial(t, "tcp4", fmt.Sprintf("127.0.0.1:%d", ln.Addr().(*net.TCPAddr).Port))
			accepted, err := ln.Accept()
			require.NoError(t, err)
			defer accepted.Close()
			for from, to := range map[net.Conn]net.Conn{client: accepted, accepted: client} {
				_, _ = from.Write([]byte("hello"))
				_, _ = to.Read(make([]byte, 10))
			}
			r := watch(t, ln.Addr().(*net.TCPAddr).Port, 0, func() {
				time.Sleep(250 * time.Millisecond)
				test.end(client.(*net.TCPConn), accepted.(*net.TCPConn))
				time.Sleep(250 * time.Millisecond)
			})
			require.Equal(t, 1, r.Seen)
			switch test.by {
			case byServer:
				require.Len(t, r.Closed, 1)
				require.NotEqual(t, Unknown, r.Closed[0].Verdict)
				require.Equal(t, test.unread, r.Closed[0].Unread)
			case ByPeer:
				require.Empty(t, r.Closed)
				require.Equal(t, 1, r.Verdicts[ByPeer])
			default:
				require.Equal(t, 1, r.Verdicts[HalfClosed])
			}
		})
	}
}

func TestWatchOfNothingFails(t *testing.T) {
	ln := sockets.Listen(t, "tcp4", "127.0.0.1:0")
	port := ln.Addr().(*net.TCPAddr).Port
	found, err := ListeningPorts(os.Getpid())
	require.NoError(t, err)
	require.Contains(t, found, port)
	require.NoError(t, ln.Close())
	_, err = Watch(t.Context(), Config{Ports: []int{port}, Every: time.Second})
	require.ErrorContains(t, err, "no socket listens there")
	_, err = ListeningPorts(1 << 30)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestAClientWithThePortOfTheServerIsNotItsConnection has a client of another server with the port
// under watch at its own end.
func TestAClientWithThePortOfTheServerIsNotItsConnection(t *testing.T) {
	t.Parallel()
	_, port := start(t, "forgetful")
	dial(t, port, 2, -1)
	other := sockets.Listen(t, "tcp4", "127.0.0.1:0")
	client := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: port}}
	r := watch(t, port, 0, func() {
		c, err := client.Dial("tcp4", other.Addr().String())
		require.NoError(t, err)
		time.Sleep(300 * time.Millisecond)
		_ = c.Close()
		time.Sleep(300 * time.Millisecond)
	})
	require.Equal(t, 2, r.Seen)
	require.Empty(t, r.Closed)
}

// TestVanishedPeers has peers that do not acknowledge the server's FIN.
func TestVanishedPeers(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		c := faultynet.New(t)
		ln := sockets.Listen(t, "tcp4", c.Host()+":0")
		var serving sync.WaitGroup
		defer serving.Wait()
		for range 5 {
			client := c.Dial(t, faultynet.PortOf(ln.Addr()))
			conn, err := ln.Accept()
			require.NoError(t, err)
			serving.Go(func() {
				defer conn.Close()
				behaviours["deadline"](conn)
			})
			_, err = client.Write([]byte("hello"))
			require.NoError(t, err)
		}
		r := watch(t, faultynet.PortOf(ln.Addr()), 0, func() {
			time.Sleep(300 * time.Millisecond)
			c.Lose(t, faultynet.ToServer, faultynet.ToClient)
			time.Sleep(idleTimeout + 300*time.Millisecond)
		})
		require.Equal(t, 5, r.Verdicts[Silence])
		require.InDelta(t, idleTimeout, r.Timeout.Median, float64(200*time.Millisecond))
	})
}
