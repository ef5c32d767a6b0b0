package nettest

import (
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/reap"
)

const (
	stallTimeout = 3 * time.Second
	stallBeat    = stallTimeout / 3
	stallLength  = stallTimeout * 3 / 2
	stallMessage = "beat"
)

// TestStall stops a server for 1.5 times the timeout. None of its living connections ends. Then
// half of the peers fall silent, and all of these connections end in time. The peers send a message
// per beat, with the kind "answers" only after the answer to the last one.
func TestStall(t *testing.T) { // before the parallel tests: it takes much of the machine
	for kind, all := range map[string]int{"TCP": 5000, "TLS": 5000, "answers": 2000} {
		half := all / 2
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server, client, stalled := stall(t, kind, all)
			require.Equal(t, all, stalled.Serving, "a stall ends no connection")
			require.Zero(t, stalled.Reaped.Total())

			var silentFrom time.Time
			client.ask("half", &silentFrom)
			silent := server.await("the silent connections end", func(s stallStats) bool { return s.Serving <= all-half })
			lasted := time.Since(silentFrom)
			end := server.await("the living connections stay", func(s stallStats) bool { return s.Messages >= silent.Messages+3*half })
			require.Equal(t, all-half, end.Serving)
			require.EqualValues(t, half, end.Reaped[reap.ReadIdle])
			t.Logf("%d silent connections ended within %v, a verdict was at most %v late",
				half, lasted.Round(time.Millisecond), end.Lateness.Max)
			const step = 10 * time.Millisecond // of the kernel's clock
			const busy = stallTimeout / 4      // for a busy machine
			require.LessOrEqual(t, end.Lateness.Max, 2*end.Tick+step+busy)
			require.Less(t, lasted, stallTimeout+end.Lateness.Max+2*time.Second)
		})
	}
}

// stall connects living peers to a server, stops the server for 1.5 times the timeout, and returns
// what the server has counted after the peers were heard again.
func stall(t *testing.T, kind string, all int) (server, client *child, after stallStats) {
	server = startRole(t, "stall server", kind)
	var addr string
	server.read(&addr)
	client = startRole(t, "stall client", kind, addr, strconv.Itoa(all))
	var connected int
	client.read(&connected)
	require.Equal(t, all, connected)
	server.await("all peers are heard", func(s stallStats) bool { return s.Serving == all && s.Messages >= 3*all })
	server.signal(syscall.SIGSTOP)
	time.Sleep(stallLength)
	server.signal(syscall.SIGCONT)
	began := server.stats()
	const waiting = int(stallLength/stallBeat) + 1 // messages of each peer
	return server, client, server.await("the peers are heard again", func(s stallStats) bool {
		return s.Messages >= began.Messages+(waiting+3)*s.Serving
	})
}

// stallStats are what the server of a stall has counted.
type stallStats struct {
	idlenet.Stats
	Tick     time.Duration
	Serving  int // connections that the server has not closed
	Messages int // from all peers
}

func (c *child) stats() (s stallStats) {
	c.t.Helper()
	c.ask("stats", &s)
	return s
}

func (c *child) await(what string, is func(stallStats) bool) (s stallStats) {
	c.t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if s = c.stats(); is(s) {
			return s
		}
		require.Less(c.t, time.Since(began), 30*time.Second, "%s: %+v", what, s)
	}
}

// stallServer is a server that reads. It prints its address, and its stats for each line of input.
func stallServer(args []string) error {
	kind := args[0]
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	watched, err := idlenet.Listen(inner, idlenet.Config{ReadTimeout: stallTimeout})
	if err != nil {
		return err
	}
	ln := net.Listener(watched)
	if kind == "TLS" {
		ln = tls.NewListener(ln, serverTLS())
	}
	var serving, messages atomic.Int64
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Add(1)
			go func() {
				defer serving.Add(-1)
				defer c.Close()
				for b := make([]byte, 64); ; {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					messages.Add(int64(n / len(stallMessage)))
					if kind == "answers" {
						_, _ = c.Write(b[:n])
					}
				}
			}()
		}
	}()
	return answer(inner.Addr().String(), func(string) any {
		return stallStats{
			Stats: watched.Stats(), Tick: watched.Config().Tick,
			Serving: int(serving.Load()), Messages: int(messages.Load()),
		}
	})
}

// stallClient keeps connections alive. It prints their number. For the input "half" it prints the
// time, and every second connection is silent from then on.
func stallClient(args []string) error {
	kind, addr := args[0], args[1]
	all, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	var half atomic.Bool
	var dials errgroup.Group
	dials.SetLimit(64)
	for n := range all {
		dials.Go(func() error {
			c, err := stallDial(kind, addr)
			if err == nil {
				go keepTalking(c, kind == "answers", func() bool { return n%2 == 0 && half.Load() })
			}
			return err
		})
	}
	if err := dials.Wait(); err != nil {
		return err
	}
	return answer(all, func(string) any {
		half.Store(true)
		return time.Now()
	})
}

func stallDial(kind, addr string) (net.Conn, error) {
	if kind == "TLS" {
		return tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true}) // of another process
	}
	return net.Dial("tcp", addr)
}

// keepTalking sends a message per beat until silent reports true, and may wait for the answer.
func keepTalking(c net.Conn, wait bool, silent func() bool) {
	time.Sleep(rand.N(stallBeat)) // spreads the connections
	for ; !silent(); time.Sleep(stallBeat) {
		if _, err := io.WriteString(c, stallMessage); err != nil {
			return
		}
		if wait {
			_, _ = io.ReadFull(c, make([]byte, len(stallMessage)))
		}
	}
	_, _ = io.Copy(io.Discard, c) // the collector closes a connection that nothing uses any more
}
