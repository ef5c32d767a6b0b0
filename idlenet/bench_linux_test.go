package idlenet

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/coarse"
)

// pairs returns connections of TCP: the accepted ends, after a Listener has watched them.
func pairs(b *testing.B, n int, cfg Config) (l *Listener, conns []net.Conn) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	l, err = Listen(inner, cfg)
	require.NoError(b, err)
	var clients []net.Conn
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
	return l, conns
}

// BenchmarkLook measures a look at a connection that stays: two questions to the kernel, the
// judgement, and the new place in the wheel.
func BenchmarkLook(b *testing.B) {
	l, conns := pairs(b, 1000, Config{ReadTimeout: time.Hour, WriteStallTimeout: time.Hour})
	var places []place
	for _, c := range conns {
		p, _ := l.find(c)
		places = append(places, p)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p := places[i%len(places)]
		p.shard.mu.Lock()
		n := p.shard.conns.At(p.id)
		p.shard.lookDue(n.timer, p.id)
		p.shard.mu.Unlock()
	}
}

// BenchmarkConnState measures the two calls that net/http makes for each request.
func BenchmarkConnState(b *testing.B) {
	l, conns := pairs(b, 1000, Config{ReadTimeout: time.Hour})
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
		cfg, err := Config{ReadTimeout: time.Hour}.check(0)
		require.NoError(b, err)
		l := newListener(inner, cfg, coarse.Real(), askKernel)
		conns := make([]openSocket, n)
		before := heap()
		b.StartTimer()
		began := time.Now()
		for i := range conns {
			own := &conns[i]
			l.shard(own).add(own, own, true)
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
	const conns, rounds, turn = 100, 11, 200 * time.Millisecond
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
		for round := range rounds {
			for k := range servers {
				i := (k + round) % len(servers)
				echoes[i] = append(echoes[i], float64(countEchoes(clients[i], turn)))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, s := range servers {
		ratios := make([]float64, len(echoes[i]))
		for k, n := range echoes[i] {
			ratios[k] = n / echoes[0][k]
		}
		slices.Sort(ratios)
		b.ReportMetric(ratios[len(ratios)/2], s.name)
		b.ReportMetric(ratios[0], s.name+"-least")
		b.ReportMetric(ratios[len(ratios)-1], s.name+"-most")
	}
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

// countEchoes returns the number of echoes of all connections in a time.
func countEchoes(conns []net.Conn, d time.Duration) (n int) {
	counts := make([]int, len(conns))
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for i, c := range conns {
		all.Go(func() {
			b := make([]byte, 16)
			for time.Now().Before(end) {
				if _, err := c.Write(b); err != nil {
					panic(fmt.Sprint("BUG: write: ", err))
				}
				if _, err := io.ReadFull(c, b); err != nil {
					panic(fmt.Sprint("BUG: read: ", err))
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

// BenchmarkMassExpiry lets 7,000 silent connections end together, and times the echoes of 100
// living ones meanwhile. Both ends are in this process.
func BenchmarkMassExpiry(b *testing.B) {
	const dead, living, timeout = 7000, 100, 3 * time.Second
	for b.Loop() {
		var reaped atomic.Int64
		inner, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		ln, err := Listen(inner, Config{ReadTimeout: timeout, OnReap: func(net.Conn, *ReapError) { reaped.Add(1) }})
		require.NoError(b, err)
		var served sync.WaitGroup
		served.Go(func() {
			for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
				served.Go(func() {
					defer c.Close()
					echoWith(c, func() {})
				})
			}
		})
		dial := func(n int) (conns []net.Conn) {
			for range n {
				c, err := net.Dial("tcp", inner.Addr().String())
				require.NoError(b, err)
				conns = append(conns, c)
			}
			return conns
		}
		speaking := dial(living)
		silent := dial(dead)
		began := time.Now()
		for _, c := range silent { // from here on they are silent together
			_, err := c.Write([]byte("x"))
			require.NoError(b, err)
		}
		var quiet, busy []float64
		ended := time.Duration(0)
		for i := 0; ended == 0 || time.Since(began) < ended+timeout/4; i++ {
			at := time.Now()
			c := speaking[i%living]
			_, err := c.Write([]byte("y"))
			require.NoError(b, err)
			_, err = io.ReadFull(c, make([]byte, 1))
			require.NoError(b, err)
			took := float64(time.Since(at).Nanoseconds()) / 1e6
			switch n := reaped.Load(); {
			case n == 0:
				quiet = append(quiet, took)
			case n < dead:
				busy = append(busy, took)
			case ended == 0:
				ended = time.Since(began)
			}
			time.Sleep(time.Millisecond)
		}
		b.ReportMetric((ended-timeout).Seconds()*1e3, "ms-all-ended")
		for name, all := range map[string][]float64{"before": quiet, "during": busy} {
			slices.Sort(all)
			if len(all) > 0 {
				b.ReportMetric(all[len(all)*99/100], "ms-p99-"+name)
			}
		}
		require.NoError(b, ln.Close())
		for _, c := range append(speaking, silent...) {
			require.NoError(b, c.Close())
		}
		served.Wait()
		eventually(b, "the goroutine ends", func() bool { return !ln.isJudging() })
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIdleCost measures the processor time of the whole process while 9,000 connections are
// judged once per minute, as part of one core.
func BenchmarkIdleCost(b *testing.B) {
	const timeout = 5 * time.Second // each connection is judged once in that time
	pairs(b, 9000, Config{ReadTimeout: timeout, OnIdle: func(net.Conn, Event) Action { return Keep }})
	for b.Loop() {
		began, used := time.Now(), processTime()
		time.Sleep(timeout)
		b.ReportMetric(100*(processTime()-used).Seconds()/time.Since(began).Seconds()*timeout.Minutes(), "%-of-a-core")
	}
	b.ReportMetric(0, "ns/op")
}

func processTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
