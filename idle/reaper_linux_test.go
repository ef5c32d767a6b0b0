package idle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/reap"
)

// TestRacesGiveExactlyOneReason makes expiry, data, a FIN or reset of the peer, a close by the user
// and Update happen at about the same time. The goodbye contains the reason, so that the client can
// tell whether it came early.
func TestRacesGiveExactlyOneReason(t *testing.T) {
	t.Parallel()
	type fate struct{ opens, closes, reaps atomic.Int32 }
	timeouts := []time.Duration{100 * time.Millisecond, 150 * time.Millisecond}
	cfg := Config{ReadTimeout: timeouts[0], Tick: 10 * time.Millisecond, Goodbye: func(_ gnet.Conn, reason *ReapError) []byte {
		return []byte(reason.Reason.Error() + " " + reason.Limit.String())
	}}
	s := newSite(t, cfg, func(s *site) {
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
			f := &fate{}
			f.opens.Add(1)
			c.SetContext(f)
			return nil, gnet.None
		}
		s.traffic = func(c gnet.Conn) gnet.Action {
			switch b, _ := c.Next(-1); {
			case bytes.Contains(b, []byte("close")):
				return gnet.Close
			case bytes.Contains(b, []byte("later")):
				time.AfterFunc(rand.N(2*timeouts[1]), func() { _ = c.Close() })
			}
			return gnet.None
		}
		s.closed = func(c gnet.Conn, err error) gnet.Action {
			f := c.Context().(*fate)
			assert.EqualValues(t, 1, f.closes.Add(1), "OnClose is called once")
			var reason *ReapError
			if errors.As(err, &reason) {
				f.reaps.Add(1)
				assert.GreaterOrEqual(t, reason.Lasted, reason.Limit)
			}
			return gnet.None
		}
	})
	over := time.Now().Add(5 * time.Second)
	var running sync.WaitGroup
	var early, reaped atomic.Int32
	running.Go(func() {
		for time.Now().Before(over) {
			time.Sleep(rand.N(20 * time.Millisecond))
			cfg.ReadTimeout = timeouts[rand.IntN(len(timeouts))]
			assert.NoError(t, s.reaper.Update(to(cfg)))
		}
	})
	client := func() {
		sent := time.Now()
		c, err := net.Dial("tcp", s.addr.String())
		if !assert.NoError(t, err) {
			return
		}
		defer c.Close()
		for range rand.IntN(3) {
			time.Sleep(rand.N(timeouts[0] * 12 / 10)) // sometimes close to the deadline
			at := time.Now()
			if _, err := c.Write([]byte("beat")); err != nil {
				break
			}
			if time.Since(sent) < timeouts[0] { // a later byte may arrive after the verdict
				sent = at
			}
		}
		switch rand.IntN(5) {
		case 0:
			_ = c.(*net.TCPConn).SetLinger(0)
			return
		case 1:
			return
		case 2:
			_, _ = c.Write([]byte("close"))
		case 3:
			_, _ = c.Write([]byte("later"))
		}
		got, _ := io.ReadAll(c)
		took := time.Since(sent)
		if limit, ok := strings.CutPrefix(string(got), "read idle "); ok {
			reaped.Add(1)
			d, err := time.ParseDuration(limit)
			if assert.NoError(t, err) && took < d {
				early.Add(1)
			}
		}
	}
	for range 100 {
		running.Go(func() {
			for time.Now().Before(over) {
				client()
			}
		})
	}
	running.Wait()
	eventually(t, "all connections are closed", func() bool { return s.reaper.Stats().Connections == 0 })
	stats := s.reaper.Stats()
	t.Logf("%+v", stats)
	require.Zero(t, early.Load(), "closed before their timeout")
	require.NotZero(t, reaped.Load())
	require.Equal(t, stats.Opened, stats.Closed)
	require.Len(t, s.reasons(), int(stats.Opened), "one OnClose per connection")
}

// TestNoVerdictHitsAnotherConnection opens and closes connections so that descriptors are reused
// all the time, while others expire. Each client sends its name, and the goodbye repeats the name
// of the connection that the verdict is about.
func TestNoVerdictHitsAnotherConnection(t *testing.T) {
	t.Parallel()
	cycles := 20_000
	if needs.IsLong() {
		cycles = 100_000
	}
	cfg := Config{ReadTimeout: 60 * time.Millisecond, Tick: 5 * time.Millisecond, Goodbye: func(c gnet.Conn, _ *ReapError) []byte {
		name, _ := c.Context().(string)
		return []byte("bye " + name)
	}}
	s := newSite(t, cfg, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			b, _ := c.Next(-1)
			c.SetContext(string(b))
			_, _ = c.Write(b)
			return gnet.None
		}
	})
	var next, reaped atomic.Int64
	cycle := func(b []byte) error {
		n := next.Add(1)
		began := time.Now()
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, byte(n>>8), byte(n)|1)}}).Dial("tcp", s.addr.String())
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.(*net.TCPConn).SetLinger(0) // leave no TIME_WAIT
		name := fmt.Sprintf("%08d", n)
		sent := time.Now()
		_, err = c.Write([]byte(name))
		written := time.Now()
		if err == nil {
			_, err = io.ReadFull(c, b[:len(name)])
		}
		if err != nil && written.Sub(began) >= cfg.ReadTimeout { // reaped: the test was too slow
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s was closed %v after its message: %w", name, time.Since(written), err)
		}
		if got := string(b[:len(name)]); got != name {
			return fmt.Errorf("%s got the echo of %s", name, got)
		}
		if n%50 != 0 {
			return nil
		}
		got, err := io.ReadAll(c) // the client stays silent
		if took := time.Since(sent); took < cfg.ReadTimeout || string(got) != "bye "+name {
			return fmt.Errorf("%s got %q, %v, after %v", name, got, err, took)
		}
		reaped.Add(1)
		return nil
	}
	var running sync.WaitGroup
	for range 16 {
		running.Go(func() {
			b := make([]byte, 64)
			for next.Load() < int64(cycles) {
				if err := cycle(b); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	running.Wait()
	t.Logf("%d cycles, %d reaped", next.Load(), reaped.Load())
	require.GreaterOrEqual(t, reaped.Load(), int64(cycles/50-16))
	eventually(t, "all connections are closed", func() bool { return s.reaper.Stats().Connections == 0 })
}

func TestAHalfClosedConnectionIsClosedAndNotReaped(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf, WriteStallTimeout: limitOf}, nil)
	c := dial(t, s.addr)
	eventually(t, "the connection is open", func() bool { return s.reaper.Stats().Connections == 1 })
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	awaitClose(t, c)
	time.Sleep(2 * limitOf)
	require.Len(t, s.reasons(), 1)
	require.NotErrorIs(t, s.reasons()[0], reap.ReadIdle)
	require.Zero(t, s.reaper.Stats().Reaped.Total())
}

func TestAFrozenPeerIsReaped(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: 2 * limitOf}, nil)
	port := faultynet.PortOf(s.addr)
	peer := exec.Command("bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; while :; do echo x >&3; sleep 0.05; done", port))
	require.NoError(t, peer.Start())
	defer func() {
		_ = peer.Process.Kill()
		_ = peer.Wait()
	}()
	eventually(t, "a heartbeat arrives", func() bool { return s.reaper.Stats().Reads > 0 })
	time.Sleep(3 * limitOf)
	require.Empty(t, s.reasons(), "the peer is alive")
	require.NoError(t, peer.Process.Signal(syscall.SIGSTOP))
	reason := s.requireReaped(t, time.Now(), limitOf, reap.ReadIdle)
	require.GreaterOrEqual(t, reason.Lasted, 2*limitOf)
}
