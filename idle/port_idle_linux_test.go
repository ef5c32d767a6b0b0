package idle

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/engine"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/faultynet"
	"github.com/idlewheel/idlewheel/reap"
)

func TestWriteIdleIsRaisedAndNothingIsClosed(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{WriteTimeout: limitOf}, func(s *site) { s.events = make(chan Event, 100) })
	began := time.Now()
	c := dial(t, s.addr)
	sendEvery(t, c, limitOf/8) // reads do not matter
	for i := range 3 {
		ev := <-s.events
		require.Equal(t, reap.WriteIdle, ev.Reason)
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
	eventually(t, "three events are counted", func() bool { return s.reaper.Stats().Events[reap.WriteIdle] > 2 })
	require.Empty(t, s.reasons())
}

// TestEverySentByteIsAWrite lets a goroutine send in each way that gnet offers, for two timeouts
// each, without a hook in any of them.
func TestEverySentByteIsAWrite(t *testing.T) {
	x := []byte("x")
	fair.TryParallel(t, func(t testing.TB) {
		s := newSite(t, Config{WriteTimeout: limitOf, AllTimeout: limitOf}, func(s *site) {
			s.events = make(chan Event, 100)
			s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
				go func() {
					for n := range 24 {
						time.Sleep(limitOf / 4)
						switch n / 8 {
						case 0:
							_ = c.AsyncWrite(x, nil)
						case 1:
							_ = c.AsyncWritev([][]byte{x, x}, nil)
						default:
							_ = c.EventLoop().Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
								_, _ = c.Writev([][]byte{x})
								_, _ = c.ReadFrom(bytes.NewReader(x))
								return c.Flush()
							}))
						}
					}
					_ = c.Close()
				}()
				return x, gnet.None
			}
		})
		awaitClose(t, dial(t, s.addr))
		require.Empty(t, s.events, "bytes were sent continuously")
	})
}

// TestASlowPeerOfALargeAnswerIsNotWriteIdle tests the case of Netty's issues 6150 and 8912: the
// peer takes many timeouts to read the bytes of one write.
func TestASlowPeerOfALargeAnswerIsNotWriteIdle(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		const size = 1 << 18
		s := newSite(t, Config{WriteTimeout: 2 * limitOf, AllTimeout: 2 * limitOf, WriteStallTimeout: 2 * limitOf}, func(s *site) {
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
		require.Greater(t, time.Since(began), 4*limitOf, "the answer took several timeouts")
		require.Empty(t, s.events, "no event while bytes move")
		ev := <-s.events
		require.True(t, ev.First)
		require.GreaterOrEqual(t, ev.Idle, 2*limitOf)
	})
}

func TestAllIdle(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{AllTimeout: limitOf}, nil)
	began := time.Now()
	awaitClose(t, dial(t, s.addr))
	reason := s.requireReaped(t, began, limitOf, reap.AllIdle)
	require.GreaterOrEqual(t, reason.Lasted, limitOf)
	living := dial(t, s.addr)
	sendEvery(t, living, limitOf/8)
	time.Sleep(3 * limitOf)
	require.Len(t, s.reasons(), 1, "a connection with reads is not idle")
}

func TestNoFirstByte(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{FirstByteTimeout: limitOf}, nil)
	speaking := dial(t, s.addr)
	send(t, speaking, "x")
	began := time.Now()
	awaitClose(t, dial(t, s.addr))
	s.requireReaped(t, began, limitOf, reap.NoFirstByte)
	time.Sleep(2 * limitOf)
	require.Len(t, s.reasons(), 1, "a peer may be silent after its first byte")
}

func TestNoHandshake(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{HandshakeTimeout: limitOf}, func(s *site) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			if b, _ := c.Next(-1); bytes.Contains(b, []byte("login")) {
				handle(s.reaper, c).Ready()
			}
			return gnet.None
		}
	})
	ready := dial(t, s.addr)
	send(t, ready, "login")
	began := time.Now()
	trickling := dial(t, s.addr)
	sendEvery(t, trickling, limitOf/20)
	awaitClose(t, trickling)
	s.requireReaped(t, began, limitOf, reap.NoHandshake)
	time.Sleep(2 * limitOf)
	require.Len(t, s.reasons(), 1)
}

func TestAWriteInOnIdleIsActivity(t *testing.T) {
	t.Parallel()
	for _, other := range []Config{{WriteTimeout: limitOf}, {AllTimeout: limitOf}} {
		type event struct {
			reason Reason
			at     time.Time
		}
		var mu sync.Mutex
		var evs []event // guarded by mu
		var e = newEcho()
		other.OnIdle = func(c gnet.Conn, ev Event) gnet.Action {
			mu.Lock()
			evs = append(evs, event{ev.Reason, time.Now()})
			mu.Unlock()
			if ev.Reason == reap.ReadIdle {
				_, _ = c.Write([]byte("PING\n"))
			}
			return gnet.None
		}
		other.ReadTimeout, other.Tick, other.OutageGrace = limitOf, tickOf, -1
		r := middleware(t, e, other)
		addr := engine.Serve(t, r, e.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(1))
		dial(t, addr)
		eventually(t, "three events have come", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(evs) >= 3
		})
		mu.Lock()
		defer mu.Unlock()
		// Of two events that are due together, either may come first.
		for i, ev := range evs[:len(evs)-1] {
			next := evs[i+1]
			if after := next.at.Sub(ev.at); ev.reason == reap.ReadIdle && next.reason != reap.ReadIdle && after < limitOf/2 {
				t.Errorf("the write for %v was followed by %v after %v", ev.reason, next.reason, after)
			}
		}
	}
}

// TestSentBytesAreAWriteThoughTheirAcknowledgementIsLost sends to a peer when its connection has
// been idle for four fifths of the timeout. The peer reads the bytes. Its acknowledgements are
// lost: for 600 ms, or for good. The timeout restarts when the bytes are sent, and not when the
// kernel retransmits them.
func TestSentBytesAreAWriteThoughTheirAcknowledgementIsLost(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	const writeAt = timeout * 4 / 5
	for _, tc := range []struct {
		name   string
		cfg    Config
		reason Reason
		lost   time.Duration
	}{
		{"all idle, lost for 600 ms", Config{AllTimeout: timeout}, reap.AllIdle, 600 * time.Millisecond},
		{"all idle, lost for good", Config{AllTimeout: timeout}, reap.AllIdle, time.Minute},
		{"write idle, lost for 600 ms", Config{WriteTimeout: timeout}, reap.WriteIdle, 600 * time.Millisecond},
		{"write idle, lost for good", Config{WriteTimeout: timeout}, reap.WriteIdle, time.Minute},
	} {
		fair.RunParallel(t, tc.name, func(t testing.TB) {
			wire := faultynet.New(t)
			opened := make(chan gnet.Conn, 1)
			type noticed struct {
				at time.Time
				ev Event
			}
			events := make(chan noticed, 100)
			e := newEcho()
			e.open = func(c gnet.Conn) ([]byte, gnet.Action) {
				opened <- c
				return nil, gnet.None
			}
			tc.cfg.OnIdle = func(_ gnet.Conn, ev Event) gnet.Action {
				events <- noticed{time.Now(), ev}
				return gnet.None
			}
			r := middleware(t, e, tc.cfg)
			addr := engine.Serve(t, r, e.booted, "tcp://"+wire.Host()+":0", gnet.WithNumEventLoop(1))
			client := wire.Dial(t, faultynet.PortOf(addr))
			c := <-opened
			began := time.Now()

			mend := wire.Lose(t, faultynet.ToServer) // early, because the command may take long
			time.Sleep(time.Until(began.Add(writeAt)))
			wrote := time.Now()
			if wrote.Sub(began) >= timeout-100*time.Millisecond {
				fair.Busy(t, "it took %v until the bytes could be sent", wrote.Sub(began))
			}
			require.NoError(t, c.AsyncWrite([]byte("news"), nil))
			b := make([]byte, 16)
			n, err := client.Read(b)
			require.NoError(t, err)
			require.Equal(t, "news", string(b[:n]))
			t.Logf("sent %v after the connection was opened, the peer has read it %v later", wrote.Sub(began), time.Since(wrote))

			var mending sync.WaitGroup
			over := make(chan struct{})
			mending.Go(func() {
				select {
				case <-time.After(time.Until(wrote.Add(tc.lost))):
				case <-over:
				}
				mend()
			})
			ev := <-events
			close(over)
			mending.Wait()
			took := ev.at.Sub(wrote)
			t.Logf("%v %v after the write, %v according to the event", ev.ev.Reason, took, ev.ev.Idle)
			assert.Equal(t, tc.reason, ev.ev.Reason)
			assert.GreaterOrEqual(t, took, timeout, "never early")
			assert.Less(t, took, timeout+300*time.Millisecond+room, "a retransmission is no activity")
		})
	}
}
