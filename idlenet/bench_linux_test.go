package idlenet

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/wheel"

	"github.com/idlewheel/idlewheel/internal/mono"
)

// pairs returns connections of TCP: the accepted ends, after a Listener has watched them.
func pairs(b *testing.B, n int, cfg Config) (l *Listener, conns, clients []net.Conn) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	l, err = Listen(inner, cfg)
	require.NoError(b, err)
	for range n {
		c, err := net.Dial("tcp", inner.Addr().String())
		require.NoError(b, err)
		clients = append(clients, c)
		accepted, err := l.Accept()
		require.NoError(b, err)
		conns = append(conns, accepted)
	}
	b.Cleanup(func() {
		require.NoError(b, l.Close())
		for i := range clients {
			require.NoError(b, clients[i].Close())
			require.NoError(b, conns[i].Close())
		}
		eventually(b, "the goroutine ends", func() bool { return !l.isJudging() })
	})
	return l, conns, clients
}

// BenchmarkLook measures a look at a connection that stays: the questions to the kernel, the
// judgement, and the new place in the wheel. A living connection has sent a byte, and the kernel
// need not be asked whether one waits.
func BenchmarkLook(b *testing.B) {
	b.Run("living", func(b *testing.B) { benchmarkLook(b, true) })
	b.Run("silent", func(b *testing.B) { benchmarkLook(b, false) })
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
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
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

// BenchmarkEcho compares servers that echo: a bare one, one with a Listener, one that calls
// SetReadDeadline before each Read, and one that moves a time.AfterFunc for each message. They take
// turns. A figure is the median of the ratios of the turns to that of the bare one, with the least
// and the greatest.
func BenchmarkEcho(b *testing.B) {
	const conns, turn = 100, 200 * time.Millisecond
	servers := []struct {
		name  string
		wrap  func(net.Listener) net.Listener
		serve func(net.Conn)
	}{
		{"bare", bareListener, func(c net.Conn) { echoWith(c, func() {}) }},
		{"idlenet", func(inner net.Listener) net.Listener {
			ln, err := Listen(inner, Config{ReadTimeout: time.Minute})
			require.NoError(b, err)
			return ln
		}, func(c net.Conn) { echoWith(c, func() {}) }},
		{"SetReadDeadline", bareListener, func(c net.Conn) {
			echoWith(c, func() { _ = c.SetReadDeadline(time.Now().Add(time.Minute)) })
		}},
		{"AfterFunc", bareListener, func(c net.Conn) {
			timer := time.AfterFunc(time.Minute, func() { _ = c.Close() })
			defer timer.Stop()
			echoWith(c, func() { timer.Reset(time.Minute) })
		}},
	}
	echoes := make([][]float64, len(servers)) // by server, in each turn
	for b.Loop() {
		addrs := make([]string, len(servers))
		var all sync.WaitGroup
		defer all.Wait()
		for i, s := range servers {
			inner, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(b, err)
			ln := s.wrap(inner)
			addrs[i] = inner.Addr().String()
			defer ln.Close()
			all.Go(func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					all.Go(func() {
						defer c.Close()
						s.serve(c)
					})
				}
			})
		}
		clients := make([][]net.Conn, len(servers))
		for i := range servers {
			for range conns {
				c, err := net.Dial("tcp", addrs[i])
				require.NoError(b, err)
				defer c.Close()
				clients[i] = append(clients[i], c)
			}
		}
		rounds := 11
		if testing.Short() {
			rounds = 1
		}
		for round := range rounds {
			for k := range servers {
				i := (k + round) % len(servers)
				echoes[i] = append(echoes[i], float64(countEchoes(clients[i], turn)))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, s := range servers {
		reportRatios(b, s.name, echoes[i], echoes[0])
	}
}

// reportRatios reports how many echoes a server sent, compared with the first one in the same turn:
// the median, the least and the greatest.
func reportRatios(b *testing.B, name string, echoes, first []float64) {
	ratios := make([]float64, len(echoes))
	for k, n := range echoes {
		ratios[k] = n / first[k]
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], name)
	b.ReportMetric(ratios[0], name+"-least")
	b.ReportMetric(ratios[len(ratios)-1], name+"-most")
}

func bareListener(inner net.Listener) net.Listener { return inner }

func echoWith(c net.Conn, before func()) {
	for b := make([]byte, 64); ; {
		before()
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if _, err := c.Write(b[:n]); err != nil {
			return
		}
	}
}

// exchangeEcho sends 16 bytes and reads their echo.
func exchangeEcho(c net.Conn) error {
	var b [16]byte
	if _, err := c.Write(b[:]); err != nil {
		return err
	}
	_, err := io.ReadFull(c, b[:])
	return err
}

// countEchoes returns the number of echoes on all connections in a time.
func countEchoes(conns []net.Conn, d time.Duration) (n int) {
	counts := make([]int, len(conns))
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for i, c := range conns {
		all.Go(func() {
			for time.Now().Before(end) {
				if err := exchangeEcho(c); err != nil {
					panic(fmt.Sprint("BUG: echo: ", err))
				}
				counts[i]++
			}
		})
	}
	all.Wait()
	for _, c := range counts {
		n += c
	}
	return n
}
