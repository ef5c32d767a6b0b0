package idlenet

import (
	"cmp"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", needs.Parallel(16)) // parallel tests wait most of the time
	goleak.VerifyTestMain(m)
}

// An echo is a server on package net that echoes what it reads.
type echo struct {
	*Listener
	t       testing.TB
	mu      sync.Mutex
	errs    []error   // guarded by mu; the errors with which reading has ended
	conns   []*served // guarded by mu
	dialled int
	served  sync.WaitGroup
}

// A served is a connection of an echo.
type served struct{ net.Conn }

// NetConn returns the connection inside.
func (c *served) NetConn() net.Conn { return c.Conn }

func newEcho(t testing.TB, cfg Config) *echo {
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	return serveEcho(t, inner, cfg)
}

func serveEcho(t testing.TB, inner net.Listener, cfg Config) *echo {
	cfg.CloseGrace = cmp.Or(cfg.CloseGrace, 300*time.Millisecond)
	ln, err := Listen(inner, cfg)
	require.NoError(t, err)
	e := &echo{Listener: ln, t: t}
	e.served.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			one := &served{c}
			e.mu.Lock()
			e.conns = append(e.conns, one)
			e.mu.Unlock()
			e.served.Go(func() { e.serve(one) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, ln.Close())
		require.NoError(t, ln.Drain(0, 0))
		e.served.Wait()
		requireNothingKept(t, ln.Reaper)
	})
	return e
}

// requireNothingKept waits until the goroutine of a Reaper has ended, and requires that the Reaper
// has given back what its connections had.
func requireNothingKept(t testing.TB, r *Reaper) {
	t.Helper()
	eventually(t, "the goroutine ends", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return !r.driving
	})
	assert.Zero(t, r.watch.Open.Load(), "open")
	assert.Zero(t, r.watch.Decided.Load(), "will close")
	for _, s := range r.shards {
		s.mu.Lock()
		assert.Empty(t, s.Remotes)
		assert.Empty(t, s.Large)
		assert.Empty(t, s.http2)
		assert.Empty(t, s.sources)
		s.mu.Unlock()
	}
}

// conn returns the handle of a connection, the zero one if it is not watched.
func (r *Reaper) conn(c net.Conn) Conn {
	found, _ := r.Conn(c)
	return found
}

func (e *echo) serve(c net.Conn) {
	defer c.Close()
	_, err := io.Copy(c, onlyReader{c})
	if reason := e.Reason(c); reason != nil {
		err = errors.Join(err, reason)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.errs = append(e.errs, err)
}

// onlyReader hides the methods that io.Copy would use to let the kernel copy.
type onlyReader struct{ io.Reader }

func (e *echo) ended() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]error(nil), e.errs...)
}

func (e *echo) dial() net.Conn {
	c := sockets.Dial(e.t, e.Addr().Network(), e.Addr().String())
	e.dialled++
	return c
}

func say(t testing.TB, c net.Conn, text string) {
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
	b := make([]byte, len(text))
	_, err = io.ReadFull(c, b)
	require.NoError(t, err)
	require.Equal(t, text, string(b))
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, 20*time.Second, 5*time.Millisecond, what)
}

func TestASilentConnectionEndsAndALivingOneStays(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		e := newEcho(t, Config{ReadTimeout: 500 * time.Millisecond})
		dead, living := e.dial(), e.dial()
		say(t, dead, "hello")
		for began := time.Now(); time.Since(began) < 2*time.Second; time.Sleep(100 * time.Millisecond) {
			say(t, living, "beat")
		}
		_, err := dead.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "the server has closed it")
		require.Len(t, e.ended(), 1)
		require.ErrorIs(t, e.ended()[0], os.ErrDeadlineExceeded)
		require.ErrorIs(t, e.ended()[0], reap.ReadIdle)
		stats := e.Stats()
		require.EqualValues(t, 1, stats.Reaped[reap.ReadIdle])
		require.Less(t, stats.Lateness.Max, 300*time.Millisecond)
	})
}

func TestASourceHasFewConnections(t *testing.T) {
	e := newEcho(t, Config{ReadTimeout: time.Minute, Sources: sourcelimit.Limits{Connections: 2}})
	first, second := e.dial(), e.dial()
	say(t, first, "hello")
	say(t, second, "hello")
	third := e.dial()
	_, err := third.Read(make([]byte, 1))
	require.Error(t, err, "the server has closed it")
	require.EqualValues(t, 1, e.Stats().Refused)
	require.NoError(t, first.Close())
	eventually(t, "the closed connection makes room", func() bool {
		c := e.dial()
		_, _ = io.WriteString(c, "x")
		n, _ := c.Read(make([]byte, 1))
		return n == 1
	})
}
