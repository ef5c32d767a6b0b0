package server

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/reap"
)

// A drained is an echo that records why connections are closed.
type drained struct {
	echo
	mu      sync.Mutex
	reasons []error // guarded by mu
}

func (d *drained) OnClose(_ gnet.Conn, err error) gnet.Action {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reasons = append(d.reasons, err)
	return gnet.None
}

func TestNewClientsAreRefusedDuringADrain(t *testing.T) {
	t.Parallel()
	l := startWithClient(t, Drain{Spread: time.Hour})
	require.Zero(t, values(t, l.Server)["draining"])
	l.cancel()
	l.requireDraining(t)
	require.Equal(t, 1.0, values(t, l.Server)["draining"])
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	}, time.Minute, time.Millisecond)
	require.NoError(t, pingPong(l.client, 10*time.Second), "the server is still there")
	require.NoError(t, l.Close())
	require.NoError(t, await(t, l.result))
	require.Zero(t, values(t, l.Server)["draining"], "the drain is over")
}

// A slowListener takes a while to stop accepting.
type slowListener struct {
	*net.TCPListener
	stopped, left atomic.Bool
}

func (ln *slowListener) SetDeadline(at time.Time) error {
	time.Sleep(50 * time.Millisecond)
	defer ln.stopped.Store(true)
	return ln.TCPListener.SetDeadline(at)
}

// Accept returns a while after a deadline: its goroutine has not run yet.
func (ln *slowListener) Accept() (net.Conn, error) {
	c, err := ln.TCPListener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		time.Sleep(50 * time.Millisecond)
		ln.left.Store(true)
	}
	return c, err
}

// TestADrainThatKeepsListening drains a server with a listener that outlives it. A client that
// connects during the drain is served by the next server.
func TestADrainThatKeepsListening(t *testing.T) {
	t.Parallel()
	ln := sockets.Listen(t, "tcp", "127.0.0.1:0")
	outlives, err := ln.(*net.TCPListener).File()
	require.NoError(t, err)
	defer outlives.Close()
	var slow *slowListener
	run := func() (s *Server, stop func(), result <-chan error) {
		inherited, err := net.FileListener(outlives)
		require.NoError(t, err)
		slow = &slowListener{TCPListener: inherited.(*net.TCPListener)}
		return launch(t, Config{
			Listeners: []net.Listener{slow}, Idle: idle.Config{ReadTimeout: time.Minute},
			Drain: Drain{Spread: 100 * time.Millisecond, Timeout: 300 * time.Millisecond, KeepListening: true},
		})
	}
	s, stop, result := run()
	busy := visit(t, s.Addr())
	go func() {
		for busy.SetDeadline(time.Now().Add(time.Second)) == nil {
			if _, err := busy.Write([]byte("x")); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	stop()
	require.Eventually(t, func() bool { return s.Stats().Draining }, time.Minute, time.Millisecond)
	require.True(t, slow.stopped.Load() && slow.left.Load(), "the server drains, and may still accept the next client")
	waits := dial(t, s.Addr())
	_, err = waits.Write([]byte("ping"))
	require.NoError(t, err)
	require.NoError(t, await(t, result))
	_, stop, result = run()
	defer func() { stop(); require.NoError(t, await(t, result)) }()
	require.NoError(t, waits.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.ReadFull(waits, make([]byte, 4))
	require.NoError(t, err)
}

func TestCloseEndsTheDelayOfADrain(t *testing.T) {
	t.Parallel()
	l := startWithClient(t, Drain{Delay: time.Hour, Spread: time.Hour})
	l.cancel()
	time.Sleep(200 * time.Millisecond)
	require.NoError(t, pingPong(l.client, 10*time.Second), "the server goes on as before")
	require.NoError(t, await(t, inBackground(l.Close)))
	require.NoError(t, await(t, l.result))
	require.NotContains(t, l.log.String(), "msg=draining")
}

// TestADrainIsNotOnlyObserved drains a server with a Reaper that closes nothing else.
func TestADrainIsNotOnlyObserved(t *testing.T) {
	t.Parallel()
	h := &drained{}
	srv, stop := startIn(t, Config{
		Listeners: []net.Listener{struct{ net.Listener }{listenTCP(t)}}, // without deadlines
		Handler:   h, Drain: Drain{Spread: 300 * time.Millisecond, Timeout: time.Minute, KeepListening: true},
		Idle: idle.Config{ReadTimeout: 100 * time.Millisecond, ObserveOnly: true, Tick: 10 * time.Millisecond},
	})
	for range 10 {
		require.NoError(t, pingPong(dial(t, srv.Addr()), 10*time.Second))
	}
	require.Eventually(t, func() bool { return srv.Reaper().Stats().Observed[reap.ReadIdle] == 10 }, time.Minute, time.Millisecond)
	stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Len(t, h.reasons, 10)
	for _, reason := range h.reasons {
		require.True(t, errors.Is(reason, reap.Drained) || errors.Is(reason, reap.ReadIdle), "%v", reason)
	}
}

// answers sends a large answer to any message.
type answers struct {
	echo
	size int
}

func (a *answers) OnTraffic(c gnet.Conn) gnet.Action {
	_, _ = c.Discard(-1)
	_, _ = c.Write(make([]byte, a.size))
	return gnet.None
}

// TestADrainLetsAnswersEnd has clients that read a large answer slowly while the server drains.
func TestADrainLetsAnswersEnd(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		const size, clients = 16 << 20, 10
		s, stop := startIn(t, Config{
			Handler: &answers{size: size}, Idle: idle.Config{ReadTimeout: time.Minute},
			Drain: Drain{Spread: 300 * time.Millisecond, Timeout: 5 * time.Second},
		})
		var reading sync.WaitGroup
		t.Cleanup(reading.Wait) // after the closes
		for range clients {
			c := dial(t, s.Addr())
			_, err := c.Write([]byte("x"))
			require.NoError(t, err)
			_, err = io.ReadFull(c, make([]byte, 1))
			require.NoError(t, err)
			reading.Go(func() {
				n := 1
				for b := make([]byte, 1<<18); ; {
					m, err := c.Read(b)
					if n += m; err != nil {
						assert.Equal(t, size, n, "%v", err)
						return
					}
					time.Sleep(2 * time.Millisecond)
				}
			})
		}
		stop()
		reading.Wait()
	})
}

func TestTheTimeoutOfADrainIsTwiceItsSpread(t *testing.T) {
	d := Drain{Spread: time.Second}
	require.NoError(t, d.check())
	require.Equal(t, 2*time.Second, d.Timeout)
	d = Drain{Spread: 20 * 24 * time.Hour}
	require.NoError(t, d.check())
	require.Equal(t, 30*24*time.Hour, d.Timeout)
}

// A deadless listener has a method SetDeadline that fails, as one around another listener may.
type deadless struct{ *net.TCPListener }

func (deadless) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// TestADrainClosesAListenerWithoutDeadlines drains a server. Its socket outlives it. It must not
// accept clients that it would refuse.
func TestADrainClosesAListenerWithoutDeadlines(t *testing.T) {
	t.Parallel()
	ln := listenTCP(t).(*net.TCPListener)
	outlives, err := ln.File()
	require.NoError(t, err)
	defer outlives.Close()
	s, stop, result := launch(t, Config{
		Listeners: []net.Listener{deadless{ln}}, Idle: idle.Config{ReadTimeout: time.Minute},
		Drain: Drain{Spread: time.Hour, KeepListening: true},
	})
	visit(t, s.Addr())
	stop()
	require.Eventually(t, func() bool { return s.Stats().Draining }, time.Minute, time.Millisecond)
	waits := dial(t, s.Addr())
	require.NoError(t, waits.SetDeadline(time.Now().Add(300*time.Millisecond)))
	_, err = waits.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it waits in the queue of the kernel")
	require.NoError(t, s.Close())
	require.NoError(t, await(t, result))
}
