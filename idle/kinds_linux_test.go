package idle

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A site is a server with a Reaper for a test.
type site struct {
	*echo
	reaper *Reaper
	addr   net.Addr
	events chan Event // of all connections, if the server decides about them
}

// newSite runs a server on one loop. The fields of the echo may be set by setUp, which also gets what will be the Reaper.
func newSite(t *testing.T, cfg Config, setUp func(*site)) *site {
	t.Helper()
	s := &site{echo: newEcho()}
	s.traffic = func(c gnet.Conn) gnet.Action { _, _ = c.Discard(-1); return gnet.None }
	if setUp != nil {
		setUp(s)
	}
	if cfg.Tick == 0 {
		cfg.Tick = tickOf
	}
	var h gnet.EventHandler = s.echo
	if s.events != nil {
		h = decider{s.echo, func(_ gnet.Conn, ev Event) gnet.Action {
			s.events <- ev
			return gnet.None
		}}
	}
	s.reaper = middleware(t, h, cfg)
	s.addr = serve(t, s.reaper, s.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(1))
	return s
}

// reason waits for the n-th OnClose and returns what it got.
func (s *site) reason(t *testing.T, n int) error {
	t.Helper()
	eventually(t, "OnClose", func() bool { return len(s.reasons()) > n })
	return s.reasons()[n]
}

// requireReaped waits until a connection is closed, checks when and why, and that it was the only one.
func (s *site) requireReaped(t *testing.T, since time.Time, limit time.Duration, want error) *ReapError {
	t.Helper()
	err := s.reason(t, 0)
	took := time.Since(since)
	require.ErrorIs(t, err, want)
	require.GreaterOrEqual(t, took, limit, "never early")
	reason, ok := errors.AsType[*ReapError](err)
	require.True(t, ok)
	eventually(t, "it is counted", func() bool { return s.reaper.Stats().Reaped[reason.Kind] == 1 })
	t.Logf("%v, %v after it began", err, took)
	return reason
}

// beat sends a byte every so often until the test ends or the connection does.
func beat(t *testing.T, c net.Conn, every time.Duration) {
	over := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(every):
				if _, err := c.Write([]byte("b")); err != nil {
					return
				}
			}
		}
	})
	t.Cleanup(func() { close(over); beating.Wait() })
}

// dialSmall connects with a receive buffer that is soon full.
func dialSmall(t *testing.T, addr net.Addr) net.Conn {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var set error
		return errors.Join(raw.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096)
		}), set)
	}}
	c, err := d.Dial("tcp", addr.String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestWriteIdleIsRaisedAndNothingIsClosed(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{WriteTimeout: limitOf}, func(s *site) { s.events = make(chan Event, 100) })
	began := time.Now()
	c := dial(t, s.addr)
	beat(t, c, limitOf/8) // what comes does not matter
	for i := range 3 {
		ev := <-s.events
		require.Equal(t, WriteIdle, ev.Kind)
		require.Equal(t, i == 0, ev.First)
		require.GreaterOrEqual(t, ev.Idle, time.Duration(i+1)*limitOf)
		require.GreaterOrEqual(t, time.Since(began), time.Duration(i+1)*limitOf)
	}
	require.Empty(t, s.reasons())
}

func TestWithoutOnIdleWriteIdleDoesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{WriteTimeout: limitOf}, nil)
	dial(t, s.addr)
	eventually(t, "some events", func() bool { return s.reaper.Stats().Events > 2 })
	require.Empty(t, s.reasons())
}

// TestWhateverIsSentIsAWrite lets a server send in all the ways there are, without a hook in any.
func TestWhateverIsSentIsAWrite(t *testing.T) {
	t.Parallel()
	push := func(write func(gnet.Conn)) func(*site) {
		return func(s *site) {
			s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
				write(c)
				return nil, gnet.None
			}
		}
	}
	every := func(c gnet.Conn, do func()) { // from a goroutine, 20 times
		go func() {
			for range 20 {
				time.Sleep(limitOf / 4)
				do()
			}
			_ = c.Close()
		}()
	}
	for name, setUp := range map[string]func(*site){
		"AsyncWrite":  push(func(c gnet.Conn) { every(c, func() { _ = c.AsyncWrite([]byte("x"), nil) }) }),
		"AsyncWritev": push(func(c gnet.Conn) { every(c, func() { _ = c.AsyncWritev([][]byte{[]byte("x"), []byte("y")}, nil) }) }),
		"Writev and ReadFrom in a task": push(func(c gnet.Conn) {
			el := c.EventLoop()
			every(c, func() {
				_ = el.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
					_, _ = c.Writev([][]byte{[]byte("x")})
					_, _ = c.ReadFrom(strings.NewReader("y"))
					return c.Flush()
				}))
			})
		}),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, Config{WriteTimeout: limitOf, AllTimeout: limitOf}, func(s *site) {
				s.events = make(chan Event, 100)
				setUp(s)
			})
			awaitClose(t, dial(t, s.addr))
			require.Empty(t, s.events, "it was written to all the time")
		})
	}
	t.Run("out of OnOpen", func(t *testing.T) {
		s := newSite(t, Config{WriteTimeout: limitOf}, func(s *site) {
			s.events = make(chan Event, 100)
			s.open = func(gnet.Conn) ([]byte, gnet.Action) { return []byte("hello"), gnet.None }
		})
		dial(t, s.addr)
		require.GreaterOrEqual(t, (<-s.events).Idle, limitOf)
	})
}

// TestASlowPeerOfALargeAnswerIsNotWriteIdle is what Netty has two issues about, 6150 and 8912: one write that takes the peer
// many timeouts to read.
func TestASlowPeerOfALargeAnswerIsNotWriteIdle(t *testing.T) {
	t.Parallel()
	const size = 1 << 18
	s := newSite(t, Config{WriteTimeout: 2 * limitOf, AllTimeout: 2 * limitOf, WriteStallTimeout: 4 * limitOf}, func(s *site) {
		s.events = make(chan Event, 100)
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
			_ = c.SetWriteBuffer(4096) // the rest waits in gnet
			_, _ = c.Write(make([]byte, size))
			return nil, gnet.None
		}
	})
	c := dialSmall(t, s.addr)
	began := time.Now()
	b := make([]byte, 4096)
	for read := 0; read < size; {
		n, err := c.Read(b)
		require.NoError(t, err)
		read += n
		time.Sleep(limitOf / 16)
	}
	require.Greater(t, time.Since(began), 4*limitOf, "it took several timeouts")
	require.Empty(t, s.events, "not even a first one while bytes move")
	ev := <-s.events
	require.True(t, ev.First)
	require.GreaterOrEqual(t, ev.Idle, 2*limitOf)
}

func TestAllIdle(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{AllTimeout: limitOf}, nil)
	began := time.Now()
	awaitClose(t, dial(t, s.addr))
	reason := s.requireReaped(t, began, limitOf, ErrAllIdle)
	require.GreaterOrEqual(t, reason.Lasted, limitOf)
	beating := dial(t, s.addr)
	beat(t, beating, limitOf/8)
	time.Sleep(3 * limitOf)
	require.Len(t, s.reasons(), 1, "what is heard is not idle")
}

func TestNoFirstByte(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{FirstByteTimeout: limitOf}, nil)
	speaking := dial(t, s.addr)
	_, err := speaking.Write([]byte("x"))
	require.NoError(t, err)
	began := time.Now()
	awaitClose(t, dial(t, s.addr))
	s.requireReaped(t, began, limitOf, ErrNoFirstByte)
	time.Sleep(2 * limitOf)
	require.Len(t, s.reasons(), 1, "who has spoken once may be silent")
}

func TestNoHandshake(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{HandshakeTimeout: limitOf}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			if b, _ := c.Next(-1); bytes.Contains(b, []byte("login")) {
				s.reaper.MarkReady(c)
			}
			return gnet.None
		}
	})
	ready := dial(t, s.addr)
	_, err := ready.Write([]byte("login"))
	require.NoError(t, err)
	began := time.Now()
	trickling := dial(t, s.addr)
	beat(t, trickling, limitOf/20)
	awaitClose(t, trickling)
	s.requireReaped(t, began, limitOf, ErrNoHandshake)
	time.Sleep(2 * limitOf)
	require.Len(t, s.reasons(), 1)
}

// flood is an OnOpen that writes so much that most of it waits.
func flood(size int) func(gnet.Conn) ([]byte, gnet.Action) {
	return func(c gnet.Conn) ([]byte, gnet.Action) {
		_, _ = c.Write(make([]byte, size))
		return nil, gnet.None
	}
}

// requireReset reads what has come and expects a reset instead of an end.
func requireReset(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err := io.Copy(io.Discard, c)
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestWriteStall(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{WriteStallTimeout: limitOf}, func(s *site) { s.open = flood(16 << 20) })
	began := time.Now()
	c := dial(t, s.addr)
	beat(t, c, limitOf/8) // it lives, and reads nothing: zero window
	reason := s.requireReaped(t, began, limitOf, ErrWriteStall)
	require.GreaterOrEqual(t, reason.Lasted, limitOf)
}

// TestAStalledPeerGoesWithItsMemory is not parallel, so that the heap is its own.
func TestAStalledPeerGoesWithItsMemory(t *testing.T) {
	const size = 64 << 20
	s := newSite(t, Config{WriteStallTimeout: limitOf}, func(s *site) { s.open = flood(size) })
	heap := func() int {
		runtime.GC()
		runtime.GC() // what lies in a sync.Pool outlives the first
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	c := dial(t, s.addr)
	eventually(t, "it is open", func() bool { return s.reaper.Stats().Connections == 1 })
	require.Greater(t, heap(), before+size/2, "what it does not read waits")
	s.requireReaped(t, time.Now(), 0, ErrWriteStall)
	require.Less(t, heap(), before+size/8)
	requireReset(t, c)
}

func TestAPeerThatReadsSlowlyIsNotStalled(t *testing.T) {
	t.Parallel()
	// The system asks a window that was closed whether it is open at intervals that double, so that bytes move every few seconds.
	s := newSite(t, Config{WriteStallTimeout: 10 * limitOf}, func(s *site) {
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
			_ = c.SetWriteBuffer(4096)
			return flood(1 << 20)(c)
		}
	})
	c := dialSmall(t, s.addr)
	b := make([]byte, 1024)
	for until := time.Now().Add(16 * limitOf); time.Now().Before(until); { // 4 KiB a second
		_, err := io.ReadFull(c, b)
		require.NoError(t, err)
		time.Sleep(250 * time.Millisecond)
	}
	require.Empty(t, s.reasons())
	require.NotZero(t, s.reaper.Stats().Rescheduled)
}

func TestOverLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{OutputLimit: OutputLimit{Hard: 1 << 20}}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action { _, _ = c.Discard(-1); flood(16 << 20)(c); return gnet.None }
	})
	c := dial(t, s.addr)
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	reason := s.requireReaped(t, time.Now(), 0, ErrOverLimit)
	require.Equal(t, 1<<20, reason.LimitBytes)
	require.Greater(t, reason.Bytes, 1<<20)
	requireReset(t, c)
}

func TestOverTheSoftLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{OutputLimit: OutputLimit{Hard: 64 << 20, Soft: 1 << 20, SoftFor: limitOf}}, func(s *site) {
		s.open = flood(16 << 20)
	})
	began := time.Now()
	c := dial(t, s.addr)
	reason := s.requireReaped(t, began, limitOf, ErrOverLimit)
	require.Equal(t, limitOf, reason.Limit)
	requireReset(t, c)
}

func TestSlowPeer(t *testing.T) {
	t.Parallel()
	cfg := Config{MinRate: MinRate{BytesPerSecond: 500, Window: limitOf, Grace: limitOf}}
	s := newSite(t, cfg, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			switch b, _ := c.Next(-1); {
			case bytes.Contains(b, []byte("begin")):
				s.reaper.BeginMessage(c)
			case bytes.Contains(b, []byte("end")):
				s.reaper.EndMessage(c)
			}
			return gnet.None
		}
	})
	silent, done, fast, slow := dial(t, s.addr), dial(t, s.addr), dial(t, s.addr), dial(t, s.addr)
	_ = silent // no message is open
	send := func(c net.Conn, b []byte) {
		_, err := c.Write(b)
		require.NoError(t, err)
	}
	send(done, []byte("begin"))
	send(fast, []byte("begin"))
	send(slow, []byte("begin"))
	began := time.Now()
	beat(t, slow, limitOf/20) // 50 bytes a second
	time.Sleep(limitOf / 4)
	send(done, []byte("end"))
	over := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(limitOf / 10):
				_, _ = fast.Write(make([]byte, 100)) // 2,500 bytes a second
			}
		}
	})
	defer sending.Wait()
	defer close(over)
	reason := s.requireReaped(t, began, 2*limitOf, ErrSlowPeer)
	require.Less(t, reason.Bytes, reason.LimitBytes)
	require.Equal(t, 200, reason.LimitBytes)
	time.Sleep(4 * limitOf)
	require.Len(t, s.reasons(), 1, "the fast, the silent and the one that is done stay")
}

func TestMinRateAlways(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{MinRate: MinRate{BytesPerSecond: 500, Window: limitOf, Grace: limitOf, Always: true}}, nil)
	began := time.Now()
	c := dial(t, s.addr)
	beat(t, c, limitOf/20)
	s.requireReaped(t, began, 2*limitOf, ErrSlowPeer)
}

// answer reads from a connection and answers each PING, until it is closed.
func answer(t *testing.T, c net.Conn, with string) (pings *atomic.Int32) {
	pings = new(atomic.Int32)
	var answering sync.WaitGroup
	answering.Go(func() {
		b := make([]byte, 64)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			pings.Add(int32(bytes.Count(b[:n], []byte("PING\n"))))
			if _, err := c.Write([]byte(with)); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() { c.Close(); answering.Wait() })
	return pings
}

func TestHeartbeatsCloseWhoDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{Heartbeat: pinging()}, nil)
	began := time.Now()
	living, talking, silent := dial(t, s.addr), dial(t, s.addr), dial(t, s.addr)
	pings := answer(t, living, "PONG\n")
	beat(t, talking, limitOf/8)
	got, err := io.ReadAll(silent)
	require.NoError(t, err)
	require.Equal(t, "PING\nPING\n", string(got))
	reason := s.requireReaped(t, began, 2*limitOf, ErrNoAnswer)
	require.Equal(t, 2*limitOf, reason.Limit)
	time.Sleep(4 * limitOf)
	require.Len(t, s.reasons(), 1)
	require.GreaterOrEqual(t, pings.Load(), int32(3))
	require.NoError(t, talking.SetReadDeadline(time.Now().Add(limitOf/4)))
	_, err = talking.Read(make([]byte, 8))
	require.Error(t, err, "who talks is not asked")
}

func TestOnlyPongsCount(t *testing.T) {
	t.Parallel()
	h := pinging()
	h.IsPong = func(c gnet.Conn) bool {
		b, _ := c.Peek(-1)
		return bytes.Contains(b, []byte("PONG"))
	}
	s := newSite(t, Config{Heartbeat: h}, nil)
	living, talking := dial(t, s.addr), dial(t, s.addr)
	pings := answer(t, living, "PONG\n")
	answer(t, talking, "what?\n")
	beat(t, talking, limitOf/8)
	s.requireReaped(t, time.Now(), 0, ErrNoAnswer)
	time.Sleep(3 * limitOf)
	require.Len(t, s.reasons(), 1)
	require.GreaterOrEqual(t, pings.Load(), int32(3))
}

func TestMarkAlive(t *testing.T) {
	t.Parallel()
	h := pinging()
	h.IsPong = func(gnet.Conn) bool { return false }
	s := newSite(t, Config{Heartbeat: h}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			_, _ = c.Discard(-1)
			s.reaper.MarkAlive(c)
			return gnet.None
		}
	})
	pings := answer(t, dial(t, s.addr), "x")
	eventually(t, "three pings", func() bool { return pings.Load() >= 3 })
	require.Empty(t, s.reasons())
}

// TestHeartbeatsOfAClient keeps a connection open from the side of a gnet.Client, and notices a server that does not answer.
func TestHeartbeatsOfAClient(t *testing.T) {
	for _, alive := range []bool{true, false} {
		ln := listenAt(t, "tcp://127.0.0.1:0")
		e := newEcho()
		e.traffic = func(c gnet.Conn) gnet.Action { _, _ = c.Discard(-1); return gnet.None }
		r := middleware(t, e, Config{Heartbeat: pinging(), Tick: tickOf})
		client, err := gnet.NewClient(r, gnet.WithLogger(quiet{}))
		require.NoError(t, err)
		require.NoError(t, client.Start())
		_, err = client.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		accepted, err := ln.Accept()
		require.NoError(t, err)
		if alive {
			pings := answer(t, accepted, "PONG\n")
			eventually(t, "three pings", func() bool { return pings.Load() >= 3 })
			require.Empty(t, e.reasons())
		} else {
			eventually(t, "it gives up", func() bool { return len(e.reasons()) == 1 })
			require.ErrorIs(t, e.reasons()[0], ErrNoAnswer)
		}
		require.NoError(t, client.Stop())
		accepted.Close()
	}
}

func TestMaxAgeSaysGoodbyeAndGivesAGrace(t *testing.T) {
	t.Parallel()
	cfg := Config{MaxAge: 2 * limitOf, MaxAgeGrace: limitOf, Goodbye: func(_ gnet.Conn, reason *ReapError) []byte {
		return []byte("bye: " + reason.Kind.String())
	}}
	s := newSite(t, cfg, nil)
	began := time.Now()
	c := dial(t, s.addr)
	beat(t, c, limitOf/8) // whatever it does
	b := make([]byte, 64)
	n, err := c.Read(b)
	require.NoError(t, err)
	require.Equal(t, "bye: too old", string(b[:n]))
	require.GreaterOrEqual(t, time.Since(began), 2*limitOf*9/10)
	require.Empty(t, s.reasons())
	rest, _ := io.ReadAll(c)
	require.Empty(t, rest, "it is told once")
	s.requireReaped(t, began, 2*limitOf*9/10+limitOf, ErrTooOld)
}

func TestHeldConnectionsAreNotIdle(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf, MaxAge: time.Minute}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			switch b, _ := c.Next(-1); string(b) {
			case "request":
				for range 300 { // more than fit in a state
					s.reaper.Hold(c)
				}
				el := c.EventLoop()
				time.AfterFunc(4*limitOf, func() {
					_ = el.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
						for range 300 {
							s.reaper.Release(c)
						}
						s.reaper.Release(c) // one too many
						return nil
					}))
				})
			}
			return gnet.None
		}
	})
	c := dial(t, s.addr)
	began := time.Now()
	_, err := c.Write([]byte("request"))
	require.NoError(t, err)
	awaitClose(t, c)
	s.requireReaped(t, began, 5*limitOf, ErrReadIdle)
}

func TestExemptConnectionsAreNotJudged(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf, MaxAge: 2 * limitOf}, func(s *site) {
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
			s.reaper.Exempt(c, true)
			return nil, gnet.None
		}
		s.traffic = func(c gnet.Conn) gnet.Action {
			_, _ = c.Discard(-1)
			s.reaper.Exempt(c, false)
			return gnet.None
		}
	})
	c := dial(t, s.addr)
	time.Sleep(4 * limitOf)
	require.Empty(t, s.reasons())
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	s.requireReaped(t, time.Now(), 0, ErrTooOld)
}

func TestTimeoutsOfOneConnection(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: 2 * limitOf}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			var err error
			switch b, _ := c.Next(-1); string(b) {
			case "short":
				err = s.reaper.SetTimeouts(c, Timeouts{Read: limitOf / 2})
			case "long": // beyond what the clock has to remember so far
				err = s.reaper.SetTimeouts(c, Timeouts{Read: 20 * limitOf})
			case "none":
				err = s.reaper.SetTimeouts(c, Timeouts{})
			case "bad":
				if s.reaper.SetTimeouts(c, Timeouts{Read: -1}) == nil {
					err = errors.New("a negative timeout is taken")
				}
			}
			if err != nil {
				t.Error(err)
			}
			return gnet.None
		}
	})
	began := time.Now()
	closed := map[string]chan time.Duration{}
	for _, what := range []string{"short", "bad", "long", "none"} {
		c := dial(t, s.addr)
		_, err := c.Write([]byte(what))
		require.NoError(t, err)
		done := make(chan time.Duration, 1)
		closed[what] = done
		go func() {
			_, _ = io.Copy(io.Discard, c)
			done <- time.Since(began)
		}()
	}
	short := <-closed["short"]
	require.GreaterOrEqual(t, short, limitOf/2)
	bad := <-closed["bad"]
	require.GreaterOrEqual(t, bad, 2*limitOf, "it keeps that of the Config")
	require.Less(t, short, bad)
	long := <-closed["long"]
	require.GreaterOrEqual(t, long, 20*limitOf)
	require.Less(t, long, 20*limitOf+room)
	require.Len(t, s.reasons(), 3, "none is none")
}

func TestUpdateReachesLiveConnections(t *testing.T) {
	t.Parallel()
	const n = 500
	s := newSite(t, Config{ReadTimeout: time.Hour}, nil)
	require.ErrorContains(t, s.reaper.Update(Config{ReadTimeout: -1}), "Config.ReadTimeout is -1ns")
	require.ErrorContains(t, s.reaper.Update(Config{ReadTimeout: time.Minute, Tick: time.Second}), "Update cannot change it")
	require.Equal(t, time.Hour, s.reaper.Config().ReadTimeout, "an error changes nothing")
	for range n {
		dial(t, s.addr)
	}
	eventually(t, "all are open", func() bool { return s.reaper.Stats().Connections == n })
	time.Sleep(limitOf)
	began := time.Now()
	require.NoError(t, s.reaper.Update(Config{ReadTimeout: 2 * limitOf}))
	eventually(t, "all are reaped", func() bool { return s.reaper.Stats().Reaped[ReadIdle] == n })
	t.Logf("%v after Update", time.Since(began))
	require.NoError(t, s.reaper.Update(Config{ReadTimeout: 20 * limitOf}))
	dial(t, s.addr)
	time.Sleep(4 * limitOf)
	require.Equal(t, 1, s.reaper.Stats().Connections, "a longer one holds at once for new ones")
	require.NoError(t, s.reaper.Update(Config{ReadTimeout: limitOf}))
	eventually(t, "it is reaped", func() bool { return s.reaper.Stats().Connections == 0 })
}

func TestObserveOnlyClosesNothing(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	s := newSite(t, Config{
		ReadTimeout: limitOf, FirstByteTimeout: 2 * limitOf, ObserveOnly: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Goodbye: func(gnet.Conn, *ReapError) []byte { return []byte("bye") },
	}, nil)
	c := dial(t, s.addr)
	eventually(t, "it is counted", func() bool { return s.reaper.Stats().Observed[ReadIdle] == 1 })
	time.Sleep(3 * limitOf)
	require.Empty(t, s.reasons())
	stats := s.reaper.Stats()
	require.EqualValues(t, 1, stats.Observed.Total(), "it would have been closed once")
	require.Zero(t, stats.Reaped.Total())
	require.Equal(t, 1, strings.Count(log.String(), "would reap connection"))
	require.Contains(t, log.String(), `reason="read idle"`)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(limitOf/4)))
	_, err := c.Read(make([]byte, 8))
	require.ErrorContains(t, err, "timeout", "nothing is said either")
}

// A lockedBuffer is a strings.Builder that is safe for concurrent use.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestGoodbyeOrReset(t *testing.T) {
	t.Parallel()
	bye := func(_ gnet.Conn, reason *ReapError) []byte { return []byte(reason.Error()) }
	s := newSite(t, Config{ReadTimeout: limitOf, Goodbye: bye}, nil)
	got, err := io.ReadAll(dial(t, s.addr))
	require.NoError(t, err, "an end, not a reset")
	require.Contains(t, string(got), "read idle for")

	s = newSite(t, Config{ReadTimeout: limitOf, Goodbye: bye, Reset: []Kind{ReadIdle}}, nil)
	requireReset(t, dial(t, s.addr))

	s = newSite(t, Config{WriteStallTimeout: limitOf, Reset: []Kind{}}, func(s *site) { s.open = flood(16 << 20) })
	c := dial(t, s.addr)
	s.requireReaped(t, time.Now(), 0, ErrWriteStall)
	_, err = io.Copy(io.Discard, c)
	require.NoError(t, err, "what the kernel has is still sent")
}

func TestGoodbyeMayClose(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf, Goodbye: func(c gnet.Conn, _ *ReapError) []byte {
		_ = c.EventLoop().Close(c)
		return []byte("bye")
	}}, nil)
	awaitClose(t, dial(t, s.addr))
	s.requireReaped(t, time.Now(), 0, ErrReadIdle)
	time.Sleep(limitOf)
	require.Len(t, s.reasons(), 1)
}

func TestPingMayClose(t *testing.T) {
	t.Parallel()
	h := pinging()
	h.Ping = func(c gnet.Conn) []byte {
		_ = c.EventLoop().Close(c)
		return []byte("PING\n")
	}
	s := newSite(t, Config{Heartbeat: h}, nil)
	awaitClose(t, dial(t, s.addr))
	require.Equal(t, []error{nil}, s.reasons())
}

func TestSnapshotAndKickAndClosed(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: time.Minute, HandshakeTimeout: time.Minute, KeepClosed: 2}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			switch b, _ := c.Next(-1); string(b) {
			case "hold":
				s.reaper.Hold(c)
			case "flood":
				flood(16 << 20)(c)
			case "ready":
				s.reaper.MarkReady(c)
			case "exempt":
				s.reaper.Exempt(c, true)
			}
			return gnet.None
		}
	})
	names := map[string]string{}
	for _, what := range []string{"nothing", "hold", "flood", "ready", "exempt"} {
		c := dial(t, s.addr)
		names[c.LocalAddr().String()] = what
		if what != "nothing" {
			_, err := c.Write([]byte(what))
			require.NoError(t, err)
		}
		time.Sleep(limitOf / 4)
	}
	show := func(by Order, limit int) (all []ConnInfo, shown []string) {
		all, err := s.reaper.Snapshot(t.Context(), by, limit)
		require.NoError(t, err)
		for _, i := range all {
			shown = append(shown, names[i.Remote.String()])
		}
		return all, shown
	}
	all, shown := show(Oldest, 10)
	require.Equal(t, []string{"nothing", "hold", "flood", "ready", "exempt"}, shown)
	for i, want := range []ConnState{StateHandshake, StateHeld, StateHandshake, StateOpen, StateExempt} {
		require.Equal(t, want, all[i].State)
	}
	require.EqualValues(t, 4, all[1].Received)
	require.Greater(t, all[0].Age, limitOf)
	require.Greater(t, all[0].ReadIdle, limitOf)
	require.NotZero(t, all[0].Due)
	_, shown = show(LongestIdle, 2)
	require.Equal(t, []string{"nothing", "hold"}, shown)
	all, shown = show(MostOutput, 1)
	require.Equal(t, []string{"flood"}, shown)
	require.Greater(t, all[0].Output, 1<<20)
	_, shown = show(MostOutput, 0)
	require.Empty(t, shown)
	_, err := s.reaper.Snapshot(t.Context(), "name", 1)
	require.ErrorContains(t, err, `no order "name"`)

	all, _ = show(Oldest, 10)
	for i, info := range all[:3] {
		id, err := ParseConnID(info.ID.String())
		require.NoError(t, err)
		require.Equal(t, info.ID, id)
		require.NoError(t, s.reaper.Kick(t.Context(), id))
		require.ErrorIs(t, s.reason(t, i), ErrKicked)
		require.ErrorIs(t, s.reaper.Kick(t.Context(), id), ErrNotWatched)
	}
	closed := s.reaper.Closed()
	require.Len(t, closed, 2, "the last ones")
	for i, c := range closed {
		require.Equal(t, all[2-i].Remote.String(), c.Remote.String())
		require.Equal(t, Kicked, c.Reason.Kind)
		require.Greater(t, c.Age, limitOf/4)
	}
	_, err = ParseConnID("1-2")
	require.Error(t, err)
	require.ErrorIs(t, s.reaper.Kick(t.Context(), ConnID{9, 9, 9}), ErrNotWatched)
	require.ErrorIs(t, s.reaper.Kick(t.Context(), ConnID{1, 1 << 20, 9}), ErrNotWatched)
}

func TestSnapshotOfALoopThatIsStuckEndsWithItsContext(t *testing.T) {
	t.Parallel()
	stuck := make(chan struct{})
	s := newSite(t, Config{ReadTimeout: time.Minute}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action { _, _ = c.Discard(-1); <-stuck; return gnet.None }
	})
	_, err := dial(t, s.addr).Write([]byte("x"))
	require.NoError(t, err)
	eventually(t, "it is open", func() bool { return s.reaper.Stats().Connections == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), limitOf)
	defer cancel()
	time.Sleep(limitOf / 4)
	_, err = s.reaper.Snapshot(ctx, Oldest, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(stuck)
}

func TestLivenessSetsTheOptionsOfTheSocket(t *testing.T) {
	t.Parallel()
	options := make(chan [5]int, 1)
	s := newSite(t, Config{Liveness: 40 * time.Second, ReadTimeout: time.Minute}, func(s *site) {
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
			var got [5]int
			for i, o := range []struct{ level, name int }{
				{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
				{unix.IPPROTO_TCP, unix.TCP_KEEPCNT}, {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
			} {
				got[i], _ = unix.GetsockoptInt(c.Fd(), o.level, o.name)
			}
			options <- got
			return nil, gnet.None
		}
	})
	dial(t, s.addr)
	require.Equal(t, [5]int{1, 20, 5, 4, 40_000}, <-options)
	_, err := Middleware(newEcho(), Config{Liveness: time.Second})
	require.ErrorContains(t, err, "Config.Liveness is 1s")
}

func TestMethodsForAHandlerKnowWhoIsNotWatched(t *testing.T) {
	r := middleware(t, newEcho(), Config{ReadTimeout: time.Minute, MinRate: MinRate{BytesPerSecond: 1}})
	el := newScriptedLoop()
	for _, loopKnown := range []bool{false, true} {
		c := newScriptedConn(el, 1)
		require.False(t, r.MarkReady(c), "%v", loopKnown)
		require.False(t, r.Hold(c))
		require.False(t, r.Release(c))
		require.False(t, r.Touch(c))
		require.False(t, r.Exempt(c, true))
		require.False(t, r.MarkAlive(c))
		require.False(t, r.BeginMessage(c))
		require.False(t, r.EndMessage(c))
		require.ErrorIs(t, r.SetTimeouts(c, Timeouts{}), ErrNotWatched)
		r.OnOpen(c)
		require.True(t, r.MarkReady(c) && r.Hold(c) && r.Release(c) && r.Touch(c) && r.Exempt(c, true) && r.MarkAlive(c) &&
			r.BeginMessage(c) && r.EndMessage(c))
		require.NoError(t, r.SetTimeouts(c, Timeouts{Read: time.Second}))
		r.OnClose(c, nil)
	}
}

func TestAHalfClosedConnectionIsClosedAndNotReaped(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf, WriteStallTimeout: limitOf}, nil)
	c := dial(t, s.addr)
	eventually(t, "it is open", func() bool { return s.reaper.Stats().Connections == 1 })
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	awaitClose(t, c)
	time.Sleep(2 * limitOf)
	require.Len(t, s.reasons(), 1)
	require.NotErrorIs(t, s.reasons()[0], ErrReadIdle)
	require.Zero(t, s.reaper.Stats().Reaped.Total())
}

func TestAResetByThePeerIsNotAReap(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf}, nil)
	c := dial(t, s.addr)
	eventually(t, "it is open", func() bool { return s.reaper.Stats().Connections == 1 })
	require.NoError(t, c.(*net.TCPConn).SetLinger(0))
	require.NoError(t, c.Close())
	require.NotErrorIs(t, s.reason(t, 0), ErrReadIdle)
	time.Sleep(2 * limitOf)
	require.Len(t, s.reasons(), 1)
	require.Zero(t, s.reaper.Stats().Reaped.Total())
}

// TestAPeerThatVanishesSaysNothing closes a socket without a word, as a machine does that loses power.
func TestAPeerThatVanishesSaysNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf}, nil)
	c := dial(t, s.addr)
	raw, err := c.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	var set error
	require.NoError(t, raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1)
	}))
	if errors.Is(set, unix.EPERM) {
		t.Skip("TCP_REPAIR needs CAP_NET_ADMIN: run as root")
	}
	require.NoError(t, set)
	began := time.Now()
	require.NoError(t, c.Close())
	s.requireReaped(t, began, 0, ErrReadIdle)
}

func TestAFrozenPeerIsReaped(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: 2 * limitOf}, nil)
	_, port, err := net.SplitHostPort(s.addr.String())
	require.NoError(t, err)
	peer := exec.Command("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+port+"; while :; do echo beat >&3; sleep 0.05; done")
	require.NoError(t, peer.Start())
	defer func() {
		_ = peer.Process.Kill()
		_ = peer.Wait()
	}()
	eventually(t, "it beats", func() bool { return s.reaper.Stats().Reads > 0 })
	time.Sleep(3 * limitOf)
	require.Empty(t, s.reasons(), "it lives")
	require.NoError(t, peer.Process.Signal(syscall.SIGSTOP))
	began := time.Now()
	reason := s.requireReaped(t, began, limitOf, ErrReadIdle)
	require.GreaterOrEqual(t, reason.Lasted, 2*limitOf)
}

// TestACableThatIsPulled deletes the network between the two: nobody tells anybody.
func TestACableThatIsPulled(t *testing.T) {
	cable := newCable(t)
	e := newEcho()
	r := middleware(t, e, Config{ReadTimeout: limitOf, Tick: tickOf})
	addr := serve(t, r, e.booted, "tcp://0.0.0.0:0", gnet.WithNumEventLoop(1))
	c := cable.dial(t, addr.(*net.TCPAddr).Port)
	beat(t, c, limitOf/8)
	time.Sleep(3 * limitOf)
	require.Empty(t, e.reasons(), "it lives")
	began := time.Now()
	cable.pull(t)
	eventually(t, "it is reaped", func() bool { return len(e.reasons()) == 1 })
	require.ErrorIs(t, e.reasons()[0], ErrReadIdle)
	require.GreaterOrEqual(t, time.Since(began), limitOf/2)
	assert.Equal(t, 0, r.Stats().Connections)
}

func TestSqueezeReachesLiveConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: time.Hour}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			_, _ = c.Discard(-1)
			_ = s.reaper.SetTimeouts(c, Timeouts{Read: 2 * time.Hour})
			return gnet.None
		}
	})
	dial(t, s.addr)
	_, err := dial(t, s.addr).Write([]byte("x"))
	require.NoError(t, err)
	eventually(t, "both are open", func() bool { return s.reaper.Stats().Connections == 2 })
	require.NoError(t, s.reaper.Squeeze(1, limitOf))
	eventually(t, "both are reaped", func() bool { return s.reaper.Stats().Reaped[ReadIdle] == 2 })
	for _, bad := range []float64{-1, 2, math.NaN()} {
		require.Error(t, s.reaper.Squeeze(bad, 0))
	}
	require.NoError(t, s.reaper.Squeeze(0, 0))
	dial(t, s.addr)
	time.Sleep(3 * limitOf)
	require.Equal(t, 1, s.reaper.Connections(), "it is taken back")
}
