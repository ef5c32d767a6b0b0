package idlenet

import (
	"bytes"
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
)

// httpSubjects are servers of net/http: one without timeouts, one with a Listener, and one with
// http.Server.IdleTimeout.
var httpSubjects = []string{"bare", "idlenet", "IdleTimeout"}

// newHTTP returns a subject that answers each request with 204.
func newHTTP(name string, inner net.Listener, timeout time.Duration) (net.Listener, *http.Server, error) {
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })}
	switch name {
	case "idlenet":
		ln, err := Listen(inner, Config{ReadTimeout: timeout})
		if err != nil {
			return nil, nil, err
		}
		server.ConnState = ln.ConnState
		return ln, server, nil
	case "IdleTimeout":
		server.IdleTimeout = timeout
	}
	return inner, server, nil
}

// request sends a request and reads its response.
func request(c net.Conn) error {
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return err
	}
	var got [512]byte
	for n := 0; !bytes.HasSuffix(got[:n], []byte("\r\n\r\n")); {
		more, err := c.Read(got[n:])
		if err != nil {
			return err
		}
		n += more
	}
	return nil
}

// serveHTTP serves a subject until the benchmark ends, and returns connections of it on which a
// request was answered.
func serveHTTP(b *testing.B, name string, n int) (conns []net.Conn, stop func()) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	ln, server, err := newHTTP(name, inner, time.Minute)
	require.NoError(b, err)
	goroutines := runtime.NumGoroutine()
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ln) })
	for range n {
		c, err := net.Dial("tcp", inner.Addr().String())
		require.NoError(b, err)
		require.NoError(b, request(c))
		conns = append(conns, c)
	}
	return conns, func() {
		require.NoError(b, server.Close())
		serving.Wait()
		for _, c := range conns {
			require.NoError(b, c.Close())
		}
		// One goroutine is that of the check.
		eventually(b, "the goroutines end", func() bool { return runtime.NumGoroutine() <= goroutines+1 })
	}
}

// BenchmarkHTTP compares the subjects by requests on 100 connections that are kept alive. They take
// turns, see BenchmarkEcho.
func BenchmarkHTTP(b *testing.B) {
	const conns, turn = 100, 200 * time.Millisecond
	done := make([][]float64, len(httpSubjects)) // by subject, in each turn
	for b.Loop() {
		clients := make([][]net.Conn, len(httpSubjects))
		for i, name := range httpSubjects {
			some, stop := serveHTTP(b, name, conns)
			defer stop()
			clients[i] = some
		}
		for round := range roundsOf(11) {
			for k := range httpSubjects {
				i := (k + round) % len(httpSubjects)
				done[i] = append(done[i], float64(countExchanges(clients[i], turn, request)))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	reportRatios(b, httpSubjects, done)
}

// BenchmarkHTTPMemory measures the memory of a connection that is kept alive, both ends included.
// That of the subjects with a timeout is told as the difference to the bare one. The subjects take
// turns, after one that does not count, and a figure is the median.
func BenchmarkHTTPMemory(b *testing.B) {
	const conns = 3000
	measure := func(name string) float64 {
		before := memory()
		clients, stop := serveHTTP(b, name, conns)
		defer stop()
		return float64(memory()-before) / float64(len(clients))
	}
	used := make([][]float64, len(httpSubjects)) // by subject, in each turn
	for b.Loop() {
		measure(httpSubjects[0])
		for range roundsOf(5) {
			for i, name := range httpSubjects {
				used[i] = append(used[i], measure(name))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, all := range used {
		slices.Sort(all)
	}
	bare := used[0][len(used[0])/2]
	b.ReportMetric(bare, "B/conn-bare")
	for i, name := range httpSubjects[1:] {
		b.ReportMetric(used[i+1][len(used[i+1])/2]-bare, "more-B/conn-"+name)
	}
}

// memory returns the bytes of the heap and the stacks.
func memory() int64 {
	n := heap()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return n + int64(m.StackInuse)
}

const httpStallTimeout = 2 * time.Second

// BenchmarkHTTPStall stops the process of each subject for 1.5 times its timeout, while 500 clients
// send requests, and counts the connections that end.
func BenchmarkHTTPStall(b *testing.B) {
	const conns = 500
	for b.Loop() {
		for _, name := range httpSubjects {
			server := startChild(b, "http "+name)
			addr := server.line(b)
			var ended atomic.Int64
			var clients sync.WaitGroup
			stop := make(chan struct{})
			for n := range conns {
				c, err := net.Dial("tcp", addr)
				require.NoError(b, err)
				clients.Go(func() {
					defer c.Close()
					for {
						if err := request(c); err != nil {
							ended.Add(1)
							return
						}
						select {
						case <-stop:
							return
						case <-time.After(httpStallTimeout/8 + time.Duration(n)*time.Millisecond):
						}
					}
				})
			}
			time.Sleep(httpStallTimeout)
			require.Zero(b, ended.Load(), "before the stall")
			require.NoError(b, server.cmd.Process.Signal(syscall.SIGSTOP))
			time.Sleep(httpStallTimeout * 3 / 2)
			require.NoError(b, server.cmd.Process.Signal(syscall.SIGCONT))
			time.Sleep(httpStallTimeout)
			b.ReportMetric(float64(ended.Load()), fmt.Sprintf("of-%d-ended-%s", conns, name))
			close(stop)
			clients.Wait()
			server.end(b)
		}
	}
	b.ReportMetric(0, "ns/op")
}
