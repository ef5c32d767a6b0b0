package idlenet

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/reap"
)

// TestConcurrentCalls calls all methods from many goroutines, while connections come and go. It
// is for the race detector.
func TestConcurrentCalls(t *testing.T) {
	length := time.Second
	if testing.Short() {
		length = 300 * time.Millisecond
	}
	e := newEcho(t, Config{
		ReadTimeout: 50 * time.Millisecond, WriteTimeout: time.Second, MaxConnections: 100, ShedProtect: time.Millisecond,
		KeepClosed: 10, HandshakeTimeout: 5 * time.Second, MinRate: MinRate{BytesPerSecond: 1},
		Heartbeat: Heartbeat{Interval: 20 * time.Millisecond, Ping: func(c net.Conn) { _, _ = c.Write([]byte("?")) }},
		OnIdle:    func(_ net.Conn, ev Event) Action { return Action(rand.IntN(2)) },
	})
	var group sync.WaitGroup
	stop := time.Now().Add(length)
	loop := func(do func()) {
		group.Go(func() {
			for time.Now().Before(stop) {
				do()
				time.Sleep(100 * time.Microsecond)
			}
		})
	}
	some := func() *served {
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.conns) == 0 {
			return &served{new(net.TCPConn)}
		}
		return e.conns[max(len(e.conns)-1-rand.IntN(50), 0)]
	}
	for range 4 {
		loop(func() {
			if c, err := net.Dial("tcp", e.Addr().String()); err == nil {
				_, _ = c.Write([]byte("hello"))
				time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
				_ = c.Close()
			}
		})
	}
	loop(func() { e.conn(some()).Hold() })
	loop(func() { e.conn(some()).Release(); e.conn(some()).Touch(); e.conn(some()).Ready() })
	loop(func() { e.conn(some()).BeginMessage(); e.conn(some()).EndMessage() })
	loop(func() { e.ConnState(some(), http.ConnState(rand.IntN(int(http.StateClosed)))) })
	loop(func() { _ = some().Close(); time.Sleep(time.Millisecond) })
	loop(func() { _ = e.Kick(context.Background(), e.conn(some()).ID()); time.Sleep(time.Millisecond) })
	loop(func() {
		_ = e.Update(func(cfg *Config) { cfg.ReadTimeout = time.Duration(40+rand.IntN(40)) * time.Millisecond })
		time.Sleep(time.Millisecond)
	})
	loop(func() {
		_, err := e.Inspect(context.Background(), reap.Query{Limit: 10, States: true, Sectors: 4, Closed: true})
		require.NoError(t, err)
		s := e.Stats()
		require.LessOrEqual(t, s.ClosedByHandler, s.Closed)
		_, _, _ = e.Reason(some()), e.Limits(), e.Connections()
		time.Sleep(time.Millisecond)
	})
	group.Wait()
	require.NoError(t, e.Drain(0, 0))
	eventually(t, "no connection is left", func() bool { return e.Connections() == 0 })
	s := e.Stats()
	require.Equal(t, s.Opened, s.Closed)
	require.Positive(t, s.Reaped.Total())
}
