package admin

import (
	"context"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
)

// Config.Status is code of the program, and may divide by zero. JSON has no NaN.
func TestAPressureThatIsNaNDoesNotPanic(t *testing.T) {
	h := newHandler(t, Config{Open: true, Status: func() Status { return Status{State: Ready, Pressure: Pressure{Heap: math.NaN()}} }})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NotPanics(t, func() { h.live.run(ctx, make(chan struct{})) })
}

// A fakeLoop is an event loop without sockets. It runs its tasks in order.
type fakeLoop struct {
	gnet.EventLoop
	tasks chan gnet.Runnable
}

func (l *fakeLoop) Execute(_ context.Context, task gnet.Runnable) error {
	l.tasks <- task
	return nil
}

// A fakeConn is a connection without a socket. No file is open with its descriptor.
type fakeConn struct {
	gnet.Conn
	fd     int
	on     *fakeLoop
	unread int // bytes
}

func (c *fakeConn) Fd() int                   { return c.fd }
func (c *fakeConn) EventLoop() gnet.EventLoop { return c.on }
func (c *fakeConn) OutboundBuffered() int     { return 0 }
func (c *fakeConn) InboundBuffered() int      { return c.unread }
func (c *fakeConn) LocalAddr() net.Addr       { return fakeAddr }
func (c *fakeConn) RemoteAddr() net.Addr      { return fakeAddr }

func (c *fakeConn) Next(int) ([]byte, error) {
	c.unread = 0
	return fakeBytes, nil
}

var (
	fakeAddr  = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	fakeBytes = []byte("x")
)

// BenchmarkFrame measures a frame of 100,000 connections on two loops, with and without the table
// of the longest idle connections.
func BenchmarkFrame(b *testing.B) {
	h := newHandler(b, Config{Open: true})
	const loops, conns = 2, 100_000
	all := make([]fakeConn, conns)
	each := func(do func(c *fakeConn)) {
		var done sync.WaitGroup
		for i := range loops {
			done.Add(1)
			_ = all[i].on.Execute(b.Context(), gnet.RunnableFunc(func(context.Context) error {
				defer done.Done()
				for n := i; n < conns; n += loops {
					do(&all[n])
				}
				return nil
			}))
		}
		done.Wait()
	}
	var on [loops]*fakeLoop
	for i := range on {
		on[i] = &fakeLoop{tasks: make(chan gnet.Runnable, 1000)}
		defer close(on[i].tasks)
		go func() {
			for task := range on[i].tasks {
				_ = task.Run(context.Background())
			}
		}()
	}
	for i := range all {
		all[i] = fakeConn{fd: 1<<20 + i, on: on[i%loops]}
	}
	each(func(c *fakeConn) { idleReaper(h.reaper).OnOpen(c) })
	defer each(func(c *fakeConn) { idleReaper(h.reaper).OnClose(c, nil) })
	for name, table := range map[string]time.Duration{"rings": time.Hour, "rings and table": -time.Hour} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var state frameState
			for b.Loop() {
				state.tableDue = time.Now().Add(table)
				if f := h.makeFrame(b.Context(), &state); f.Connections != conns || len(f.Rings) != loops {
					b.Fatalf("%d connections in %d rings", f.Connections, len(f.Rings))
				}
			}
		})
	}
}

// BenchmarkTrafficWithoutViewers measures a message to a server with a Handler that has no
// viewers, and to a server without a Handler.
func BenchmarkTrafficWithoutViewers(b *testing.B) {
	for _, with := range []string{"without", "with"} {
		b.Run(with, func(b *testing.B) {
			s := &site{reasons: map[string]error{}}
			r, err := idle.Middleware(s, minute)
			require.NoError(b, err)
			if with == "with" {
				_, err := New(Config{Reaper: r, Open: true})
				require.NoError(b, err)
			}
			on := &fakeLoop{tasks: make(chan gnet.Runnable, 1000)} // runs no tasks, because nothing is due
			c := &fakeConn{fd: 1 << 20, on: on}
			r.OnOpen(c)
			defer r.OnClose(c, nil)
			b.ReportAllocs()
			for b.Loop() {
				c.unread = 1
				r.OnTraffic(c)
			}
		})
	}
}
