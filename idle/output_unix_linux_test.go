package idle

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
)

func unixSite(t testing.TB, cfg Config, s *site) *site {
	s.reaper = middleware(t, s.echo, cfg)
	s.addr = serve(t, s.reaper, s.booted, unixAddr(t), gnet.WithNumEventLoop(1))
	return s
}

func TestAUnixPeerThatReadsIsNotStalled(t *testing.T) {
	t.Parallel()
	conns := make(chan gnet.Conn, 1)
	s := &site{echo: newEcho()}
	s.open = func(c gnet.Conn) ([]byte, gnet.Action) { conns <- c; return nil, gnet.None }
	unixSite(t, Config{WriteStallTimeout: time.Second, Tick: 20 * time.Millisecond}, s)
	c := dial(t, s.addr)
	gc := <-conns
	stop := time.After(5 * time.Second)
	var got atomic.Int64
	go func() { // reads 100 KB/s
		b := make([]byte, 1024)
		for {
			n, err := c.Read(b)
			got.Add(int64(n))
			if err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
loop:
	for {
		select {
		case <-stop:
			break loop
		case <-time.After(10 * time.Millisecond):
			_ = gc.AsyncWrite(make([]byte, 1200), nil) // slightly more than the peer reads
		}
	}
	require.Empty(t, s.reasons(), "the peer reads continuously: %d bytes", got.Load())
}

func TestAUnixPeerThatEchoesIsNotStalled(t *testing.T) {
	t.Parallel()
	s := &site{echo: newEcho()}
	unixSite(t, Config{WriteStallTimeout: time.Second, Tick: 20 * time.Millisecond}, s)
	c := dial(t, s.addr)
	began := time.Now()
	b := make([]byte, 1000)
	// Four messages are always in flight.
	for range 4 {
		_, _ = c.Write(b)
	}
	n := 0
	for time.Since(began) < 6*time.Second {
		time.Sleep(3 * time.Millisecond)
		if _, err := io.ReadFull(c, b); err != nil {
			break
		}
		n++
		if _, err := c.Write(b); err != nil {
			break
		}
	}
	require.Empty(t, s.reasons(), "after %v and %d echoes", time.Since(began), n)
}

func TestAUnixConnectionIsNotCheckedMoreOften(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"unix", "tcp"} {
		s := &site{echo: newEcho()}
		s.traffic = func(c gnet.Conn) gnet.Action {
			_, _ = c.Discard(-1)
			handle(s.reaper, c).BeginMessage()
			handle(s.reaper, c).EndMessage()
			return gnet.None
		}
		cfg := Config{WriteTimeout: limitOf, Tick: 10 * time.Millisecond}
		var c net.Conn
		if addr == "unix" {
			unixSite(t, cfg, s)
		} else {
			s.reaper = middleware(t, s.echo, cfg)
			s.addr = serve(t, s.reaper, s.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(1))
		}
		c = dial(t, s.addr)
		began := time.Now()
		for range 300 {
			_, _ = c.Write([]byte("x"))
			time.Sleep(10 * time.Millisecond)
		}
		took := time.Since(began)
		require.LessOrEqual(t, s.reaper.Stats().Rescheduled, uint64(took/(50*time.Millisecond)), "%s: checks in %v", addr, took)
	}
}
