package idle

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/testing/engine"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

// echo is a handler that echoes. Functions in its fields replace its methods. A site has one, and
// tests give one to serve or to middleware.
type echo struct {
	gnet.BuiltinEventEngine

	booted  chan engine.Boot
	open    func(gnet.Conn) ([]byte, gnet.Action)
	traffic func(gnet.Conn) gnet.Action
	closed  func(gnet.Conn, error) gnet.Action

	mu     sync.Mutex
	closes []error // guarded by mu
}

func newEcho() *echo { return &echo{booted: make(chan engine.Boot, 8)} }

func (e *echo) OnBoot(eng gnet.Engine) gnet.Action {
	e.booted <- engine.NewBoot(eng)
	return gnet.None
}

func (e *echo) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	if e.open != nil {
		return e.open(c)
	}
	return nil, gnet.None
}

func (e *echo) OnTraffic(c gnet.Conn) gnet.Action {
	if e.traffic != nil {
		return e.traffic(c)
	}
	b, _ := c.Next(-1)
	_, _ = c.Write(b)
	return gnet.None
}

func (e *echo) OnClose(c gnet.Conn, err error) gnet.Action {
	e.mu.Lock()
	e.closes = append(e.closes, err)
	e.mu.Unlock()
	if e.closed != nil {
		return e.closed(c, err)
	}
	return gnet.None
}

// reasons returns the errors that OnClose got so far.
func (e *echo) reasons() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]error(nil), e.closes...)
}

// dial connects, and closes when the test ends.
func dial(t testing.TB, addr net.Addr) net.Conn {
	t.Helper()
	return sockets.Dial(t, addr.Network(), addr.String())
}

// unixAddr returns an address for a unix socket. Its path is short enough for the kernel.
func unixAddr(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "idle")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return "unix://" + filepath.Join(dir, "s")
}

// send writes a message.
func send(t testing.TB, c net.Conn, message string) {
	t.Helper()
	_, err := c.Write([]byte(message))
	require.NoError(t, err)
}

// sendEvery sends a byte at an interval until the test or the connection ends.
func sendEvery(t testing.TB, c net.Conn, every time.Duration) { sendEach(t, c, every, "b") }

// sendEach is sendEvery with a message.
func sendEach(t testing.TB, c net.Conn, every time.Duration, message string) {
	over := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(every):
				if _, err := c.Write([]byte(message)); err != nil {
					return
				}
			}
		}
	})
	t.Cleanup(func() { close(over); sending.Wait() })
}

// awaitClose waits until the peer of c has closed it, and returns the time.
func awaitClose(t testing.TB, c net.Conn) time.Time {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	b := make([]byte, 512)
	for {
		if _, err := c.Read(b); err != nil {
			require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "not closed within a minute")
			return time.Now()
		}
	}
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, time.Minute, 5*time.Millisecond, what)
}

func middleware(t testing.TB, h gnet.EventHandler, cfg Config) *Reaper {
	t.Helper()
	r, err := Middleware(h, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { // its engine, if it had one, has ended
		assert.Zero(t, r.watch.Open.Load(), "open")
		assert.Zero(t, r.watch.Decided.Load(), "will close")
		assert.Zero(t, r.output.Load(), "bytes of output")
	})
	return r
}

// limitOf is short enough for a test and long enough for a loaded machine. tickOf is its tick.
const (
	limitOf = 400 * time.Millisecond
	tickOf  = 20 * time.Millisecond
)

// room is the delay that a loaded machine may add to a promised time before a test fails. The log
// of the test has the measured times.
const room = 2 * time.Second

// pinging is a Heartbeat that sends PING.
func pinging() Heartbeat {
	return Heartbeat{
		Interval: limitOf, Retry: limitOf / 2, MaxMissed: 2, Ping: func(gnet.Conn) []byte { return []byte("PING\n") },
	}
}

// handle returns the Conn of a connection, or a closed Conn if the connection is not watched.
func handle(r *Reaper, c gnet.Conn) Conn {
	conn, _ := r.Conn(c)
	return conn
}

// to returns an edit for Update that replaces the whole Config.
func to(cfg Config) func(*Config) { return func(c *Config) { *c = cfg } }

// setMax changes the limit of open connections.
func setMax(r *Reaper, n int) error {
	return r.Update(func(cfg *Config) { cfg.MaxConnections = n })
}

// list returns the first connections of an order.
func list(ctx context.Context, r *Reaper, by string, limit int) ([]ConnInfo, error) {
	found, err := r.Inspect(ctx, Query{By: by, Limit: limit})
	return found.Connections, err
}

// ringsOf returns the ring of each loop.
func ringsOf(ctx context.Context, r *Reaper, sectors int) ([]Ring, error) {
	found, err := r.Inspect(ctx, Query{Sectors: sectors})
	return found.Rings, err
}

// flushLog waits until the records of a Reaper are written.
func flushLog(r *Reaper) { logging.Of(r.Config().Logger).Flush() }
