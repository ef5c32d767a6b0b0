package idlenet

import (
	"net"
	"net/http"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/wheel"
)

// pairs returns connections of TCP: the accepted ends, after a Listener has watched them.
func pairs(b *testing.B, n int, cfg Config) (l *Listener, conns, clients []net.Conn) {
	l, dial := serveDeaf(b, cfg)
	for range n {
		client, conn := dial()
		clients, conns = append(clients, client), append(conns, conn)
	}
	return l, conns, clients
}

// BenchmarkLook measures a look at a connection that stays: the questions to the kernel, the
// judgement, and the new place in the wheel. A living connection has sent a byte, and the kernel
// need not be asked whether one waits.
func BenchmarkLook(b *testing.B) {
	for name, living := range map[string]bool{"living": true, "silent": false} {
		b.Run(name, func(b *testing.B) { benchmarkLook(b, living) })
	}
}

func benchmarkLook(b *testing.B, living bool) {
	l, conns, clients := pairs(b, 1000, Config{ReadTimeout: time.Hour, WriteStallTimeout: time.Hour})
	type place struct {
		shard *shard
		id    uint32
	}
	var places []place
	for i, c := range conns {
		l.with(c, func(s *shard, id uint32, _ *conn) { places = append(places, place{s, id}) })
		if one := make([]byte, 1); living {
			_, err := clients[i].Write(one)
			require.NoError(b, err)
			_, err = c.Read(one)
			require.NoError(b, err)
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p := places[i%len(places)]
		p.shard.mu.Lock()
		p.shard.Look(wheel.Handle(0), p.id) // nothing is due, so that Advance would look at none
		p.shard.mu.Unlock()
	}
}

// BenchmarkConnState measures the two calls that net/http makes for each request.
func BenchmarkConnState(b *testing.B) {
	l, conns, _ := pairs(b, 1000, Config{ReadTimeout: time.Hour})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.ConnState(conns[i%len(conns)], http.StateActive)
		l.ConnState(conns[i%len(conns)], http.StateIdle)
	}
}

// BenchmarkAdd measures what a Listener adds to an Accept, and to the memory of a connection.
func BenchmarkAdd(b *testing.B) {
	const n = 1 << 17
	for b.Loop() {
		b.StopTimer()
		inner := sockets.Listen(b, "tcp", "127.0.0.1:0")
		cfg, err := (&Config{ReadTimeout: time.Hour}).check(inner.Addr(), 0, nil)
		require.NoError(b, err)
		l := newReaper(cfg, mono.Real(), askKernel)
		conns := make([]openSocket, n)
		before := heap()
		b.StartTimer()
		began := time.Now()
		for i := range conns {
			own := &conns[i]
			l.shard(own).add(own, own, dialled)
		}
		b.ReportMetric(float64(time.Since(began).Nanoseconds())/n, "ns/conn")
		b.StopTimer()
		b.ReportMetric(float64(heap()-before)/n, "B/conn")
		runtime.KeepAlive(l)
		require.NoError(b, inner.Close())
		b.StartTimer()
	}
}

// An openSocket is a socket that is never closed.
type openSocket struct{ net.TCPConn }

func (s *openSocket) SyscallConn() (syscall.RawConn, error) { return openRaw{}, nil }

type openRaw struct{ syscall.RawConn }

func (openRaw) Control(func(uintptr)) error { return nil }

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
