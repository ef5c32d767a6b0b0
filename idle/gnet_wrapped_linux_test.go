package idle

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/engine"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/reap"
)

// handshakeOf is longer than the handshakes of a test take, and shorter than the life of its
// clients.
const handshakeOf = 2 * limitOf

// TestLivingTLSClientsAreNotCutOff checks the promise: living peers stay connected, silent peers
// are closed with the reason. The handler ends the handshake, inside or outside of the layer. Half
// of the connections of a loop may have no layer, and the others may have TLS in TLS.
func TestLivingTLSClientsAreNotCutOff(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain=%v", plain), func(t *testing.T) {
			t.Parallel()
			forEachCase(t, append(wrappedCases, stackedCases...), func(t testing.TB, w wrappedCase) {
				cfg := Config{ReadTimeout: limitOf, HandshakeTimeout: handshakeOf, Goodbye: sayReason}
				if w.isHidden() {
					cfg.HandshakeTimeout, cfg.Goodbye = 0, nil
				}
				s, n := newWrappedSite(t, w, cfg, nil), 0
				requireSilentClosed(t, s, func() net.Conn {
					// The order is: living plain, silent wrapped, living wrapped, silent plain.
					if n++; plain && n%4 < 2 {
						return s.dialPlain(t)
					}
					return s.dial(t)
				})
			})
		})
	}
}

// requireSilentClosed has clients that keep sending and clients that are silent after their first
// message. It checks that only the silent clients are closed.
func requireSilentClosed(t testing.TB, s *wrappedSite, dial func() net.Conn) {
	t.Helper()
	const n = 4 // clients of each sort
	var living, silent []net.Conn
	var sending, waiting sync.WaitGroup
	stop := make(chan struct{})
	defer sending.Wait()
	defer waiting.Wait()
	defer close(stop)
	for range n {
		alive, dead := dial(), dial()
		living, silent = append(living, alive), append(silent, dead)
		s.requireReady(t, alive)
		sending.Go(func() { keepExchanging(t, alive, stop) })
		s.requireReady(t, dead)
		require.NoError(t, dead.SetReadDeadline(time.Now().Add(time.Minute)))
		waiting.Go(func() {
			if words, err := io.ReadAll(dead); err != nil || s.saysGoodbye() != (string(words) == "bye: read idle") {
				t.Errorf("the stream of a silent client has ended with %q and %v", words, err)
			}
		})
	}
	time.Sleep(handshakeOf + limitOf)
	waiting.Wait()
	for _, c := range silent {
		s.requireEnd(t, c, reap.ReadIdle)
	}
	eventually(t, "the silent clients are counted", func() bool { return s.reaper.Stats().Reaped[reap.ReadIdle] == n })
	for _, c := range living {
		s.guest(c.LocalAddr(), func(g *tlsGuest) { require.Empty(t, g.ends, "the client is alive") })
	}
	require.EqualValues(t, n, s.reaper.Stats().Reaped.Total())
}

// TestARecordInPieces sends one TLS record over two timeouts. The handler gets no byte of it before
// the end, but the client counts as alive.
func TestARecordInPieces(t *testing.T) {
	t.Parallel()
	forEachCase(t, fewCases[1:], func(t testing.TB, w wrappedCase) {
		s := newWrappedSite(t, w, Config{ReadTimeout: limitOf}, nil)
		slow := &slowConn{Conn: dial(t, s.addr)}
		cfg := clientTLS()
		cfg.DynamicRecordSizingDisabled = true
		c := speakTLS(t, slow, cfg, 1)
		s.requireReady(t, c)
		slow.pause = limitOf / 8
		message := strings.Repeat("x", 18*slowPiece)
		send(t, c, message)
		got := make([]byte, len(message))
		_, err := io.ReadFull(c, got)
		require.NoError(t, err)
		require.Equal(t, message, string(got))
	})
}

const slowPiece = 256 // bytes

// A slowConn writes in pieces, with pauses between them.
type slowConn struct {
	net.Conn
	pause time.Duration
}

func (c *slowConn) Write(p []byte) (n int, err error) {
	for err == nil && n < len(p) {
		time.Sleep(c.pause)
		var wrote int
		wrote, err = c.Conn.Write(p[n:min(n+slowPiece, len(p))])
		n += wrote
	}
	return n, err
}

// TestWakeDoesNotKeepATLSClientAlive wakes a silent connection eight times per timeout. The handler
// leaves decrypted bytes in the layer meanwhile.
func TestWakeDoesNotKeepATLSClientAlive(t *testing.T) {
	t.Parallel()
	forEachCase(t, fewCases[1:], func(t testing.TB, w wrappedCase) {
		s := newWrappedSite(t, w, Config{ReadTimeout: limitOf}, func(s *wrappedSite, _ *Config) {
			s.traffic = func(c gnet.Conn) gnet.Action {
				if b, _ := c.Peek(-1); string(b) == "partial" {
					time.AfterFunc(limitOf/8, func() { _ = c.Wake(nil) })
				} else if len(b) > len("partial") {
					t.Errorf("%q waits", b)
				}
				return gnet.None
			}
		})
		c := s.dial(t)
		send(t, c, "partial")
		awaitClose(t, c)
		s.requireEnd(t, c, reap.ReadIdle)
	})
}

// TestAPingIsEncrypted has a client that answers pings, a client that only reads them, and a client
// that sends other messages. Outside, IsPong gets decrypted bytes. Inside, it would get encrypted
// bytes, and the handler calls Conn.Alive instead. With Unwrap any byte is an answer.
func TestAPingIsEncrypted(t *testing.T) {
	t.Parallel()
	isPong := func(c gnet.Conn) bool {
		b, _ := c.Peek(-1)
		return strings.Contains(string(b), "PONG\n")
	}
	forEachCase(t, wrappedCases, func(t testing.TB, w wrappedCase) {
		if w.isHidden() {
			t.Skip("pings of a hidden connection are no TLS records")
		}
		anyByte := w.as[0] == asUnwrap
		s := newWrappedSite(t, w, Config{}, func(s *wrappedSite, cfg *Config) {
			cfg.Heartbeat = pinging()
			ping := cfg.Heartbeat.Ping
			cfg.Heartbeat.Ping = func(c gnet.Conn) []byte {
				if outer := s.conn(c.RemoteAddr()); c != outer {
					t.Errorf("Ping got %T, want %T", c, outer)
				}
				return ping(c)
			}
			switch {
			case anyByte:
			case w.place == layerOutside:
				cfg.Heartbeat.IsPong = isPong
			default:
				cfg.Heartbeat.IsPong = func(gnet.Conn) bool { return false }
			}
			open := s.open
			s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
				conn, ok := s.reaper.Conn(c) // tells the Reaper of the outer connection
				assert.True(t, ok, "the connection is not watched in OnOpen")
				conn.Ready()
				return open(c)
			}
			s.traffic = func(c gnet.Conn) gnet.Action {
				if w.place == layerInside && isPong(c) {
					conn, ok := s.reaper.Conn(c)
					assert.True(t, ok, "the connection is not watched in OnTraffic")
					conn.Alive()
				}
				_, _ = c.Discard(-1)
				return gnet.None
			}
		})
		silent, talking, living := s.dial(t), s.dial(t), s.dial(t)
		pings := answer(t, living, "PONG\n")
		answer(t, talking, "what?\n")
		sendEvery(t, talking, limitOf/4)
		requirePings(t, silent)
		s.requireEnd(t, silent, reap.HeartbeatTimeout)
		eventually(t, "two pings are answered", func() bool { return pings.Load() >= 2 })
		s.guest(living.LocalAddr(), func(g *tlsGuest) { require.Empty(t, g.ends, "the client answers pings") })
		if anyByte {
			s.guest(talking.LocalAddr(), func(g *tlsGuest) { require.Empty(t, g.ends, "the client sends bytes") })
		} else {
			s.requireEnd(t, talking, reap.HeartbeatTimeout)
		}
	})
}

// TestOnIdleGetsTheConnectionOfTheLayer lets OnIdle write to the client, and then close it.
func TestOnIdleGetsTheConnectionOfTheLayer(t *testing.T) {
	t.Parallel()
	forEachCase(t, fewCases[1:], func(t testing.TB, w wrappedCase) {
		s := newWrappedSite(t, w, Config{ReadTimeout: limitOf}, func(s *wrappedSite, _ *Config) {
			s.onIdle = func(c gnet.Conn, ev Event) gnet.Action {
				if outer := s.conn(c.RemoteAddr()); c != outer {
					t.Errorf("OnIdle got %T, want %T", c, outer)
				}
				if ev.First {
					_, _ = c.Write([]byte("idle?"))
					return gnet.None
				}
				return gnet.Close
			}
		})
		c := s.dial(t)
		s.requireReady(t, c)
		requireLastWords(t, c, "idle?")
		s.requireEnd(t, c, reap.ReadIdle)
	})
}

// TestTheGoodbyeIsEncrypted reads the goodbye as a TLS client: application data, then the end of
// the stream. Connections that never complete the TLS handshake are closed as well.
func TestTheGoodbyeIsEncrypted(t *testing.T) {
	t.Parallel()
	forEachCase(t, wrappedCases, func(t testing.TB, w wrappedCase) {
		s := newWrappedSite(t, w, Config{ReadTimeout: limitOf}, func(s *wrappedSite, cfg *Config) {
			cfg.Goodbye = func(c gnet.Conn, reason *ReapError) []byte {
				s.guest(c.RemoteAddr(), func(g *tlsGuest) {
					isKnown := w.place == layerOutside || g.ready
					assert.False(t, isKnown && c != g.conn, "Goodbye got %T, want %T", c, g.conn)
				})
				return sayReason(c, reason)
			}
		})
		silent, half := dial(t, s.addr), dial(t, s.addr)
		_, err := half.Write([]byte{22, 3, 1, 2, 0, 1}) // the beginning of a record
		require.NoError(t, err)
		c := s.dial(t)
		s.requireReady(t, c)
		if w.isHidden() { // the goodbye is no TLS record
			awaitClose(t, c)
		} else {
			requireLastWords(t, c, "bye: read idle")
		}
		for _, c := range []net.Conn{c, silent, half} {
			awaitClose(t, c)
			s.requireEnd(t, c, reap.ReadIdle)
		}
	})
}

// TestKickATLSClient closes one of two clients by its ID.
func TestKickATLSClient(t *testing.T) {
	t.Parallel()
	forEachCase(t, wrappedCases, func(t testing.TB, w wrappedCase) {
		s := newWrappedSite(t, w, Config{ReadTimeout: time.Minute, Goodbye: sayReason}, nil)
		stays, kicked := s.dial(t), s.dial(t)
		s.requireReady(t, stays)
		s.requireReady(t, kicked)
		all, err := list(t.Context(), s.reaper, "age", 10)
		require.NoError(t, err)
		require.Len(t, all, 2)
		var id ConnID
		for _, info := range all {
			if info.Remote.String() == kicked.LocalAddr().String() {
				id = info.ID
				require.NotZero(t, info.Received, "the kernel knows the socket")
			}
		}
		require.NoError(t, s.reaper.Kick(t.Context(), id))
		if w.isHidden() {
			awaitClose(t, kicked)
		} else {
			requireLastWords(t, kicked, "bye: kicked")
		}
		s.requireEnd(t, kicked, reap.Kicked)
		require.ErrorIs(t, s.reaper.Kick(t.Context(), id), ErrNotWatched)
		require.NoError(t, exchangeMessage(stays))
		require.Equal(t, 1, s.reaper.Connections())
	})
}

// TestATLSClientThatReadsNothing has a client that is reset because too much output waits.
func TestATLSClientThatReadsNothing(t *testing.T) {
	t.Parallel()
	forEachCase(t, fewCases, func(t testing.TB, w wrappedCase) {
		s := newWrappedSite(t, w, Config{OutputLimit: OutputLimit{Hard: 1 << 20}}, func(s *wrappedSite, _ *Config) {
			s.traffic = func(c gnet.Conn) gnet.Action {
				_, _ = c.Discard(-1)
				_, _ = c.Write(make([]byte, 8<<20))
				return gnet.None
			}
		})
		c := speakTLS(t, dialSmall(t, s.addr), clientTLS(), 1)
		send(t, c, "x")
		s.requireEnd(t, c, reap.OverLimit)
	})
}

// TestARefusedTLSClient connects a client above MaxConnections. The handler gets no call for it.
func TestARefusedTLSClient(t *testing.T) {
	t.Parallel()
	forEachCase(t, fewCases, func(t testing.TB, w wrappedCase) {
		s := newWrappedSite(t, w, Config{ReadTimeout: time.Minute, MaxConnections: 1, ShedProtect: time.Minute}, nil)
		c := s.dial(t)
		s.requireReady(t, c)
		awaitClose(t, dial(t, s.addr))
		require.NoError(t, exchangeMessage(c))
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Len(t, s.guests, 1)
		require.Empty(t, s.reasons())
		require.Equal(t, 1, s.reaper.Connections())
	})
}

// A passingLayer makes a new wrapper for each event.
type passingLayer struct {
	gnet.EventHandler
	wrap func(gnet.Conn) gnet.Conn
}

func (p passingLayer) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	return p.EventHandler.OnOpen(p.wrap(c))
}

func (p passingLayer) OnTraffic(c gnet.Conn) gnet.Action { return p.EventHandler.OnTraffic(p.wrap(c)) }

func (p passingLayer) OnClose(c gnet.Conn, err error) gnet.Action {
	return p.EventHandler.OnClose(p.wrap(c), err)
}

// TestAWrapperForEachEvent has layers that make a new wrapper for each event.
func TestAWrapperForEachEvent(t *testing.T) {
	t.Parallel()
	wraps := map[string]func(gnet.Conn) gnet.Conn{
		"Unwrap":  func(c gnet.Conn) gnet.Conn { return boxedConn{Conn: c} },
		"foreign": func(c gnet.Conn) gnet.Conn { return struct{ gnet.Conn }{c} },
	}
	for name, wrap := range wraps {
		for _, place := range []layerPlace{layerOutside, layerInside} {
			fair.RunParallel(t, fmt.Sprint(place, " ", name), func(t testing.TB) {
				hidden := name == "foreign" && place == layerInside
				e := newEcho()
				var r *Reaper
				e.traffic = func(c gnet.Conn) gnet.Action {
					b, _ := c.Next(-1)
					_, _ = c.Write(b)
					conn, watched := r.Conn(c)
					assert.NotEqual(t, hidden, watched, "Conn reports %v", watched)
					conn.Touch()
					return gnet.None
				}
				cfg := Config{ReadTimeout: limitOf, Tick: tickOf, Goodbye: sayReason}
				var h gnet.EventHandler
				if place == layerOutside {
					r = middleware(t, e, cfg)
					h = passingLayer{r, wrap}
				} else {
					r = middleware(t, passingLayer{e, wrap}, cfg)
					h = r
				}
				addr := engine.Serve(t, h, e.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(1))
				silent := dial(t, addr)
				require.NoError(t, exchangeMessage(silent))
				living := dial(t, addr)
				requireAlive(t, living, 2*limitOf)
				requireLastWords(t, silent, "bye: read idle")
				require.Len(t, e.reasons(), 1)
				require.ErrorIs(t, e.reasons()[0], reap.ReadIdle)
				require.Equal(t, 1, r.Connections())
			})
		}
	}
}
