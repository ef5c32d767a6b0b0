package idle

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/reap"
)

// handshakeOf is longer than the handshakes of a test take, and shorter than the life of its
// clients.
const handshakeOf = 2 * limitOf

// TestLivingTLSClientsAreNotCutOff checks the promise: living peers stay connected, silent peers
// are closed with the reason. The handler ends the handshake, inside or outside of the layer.
func TestLivingTLSClientsAreNotCutOff(t *testing.T) {
	t.Parallel()
	forEachCase(t, wrappedCases, func(t *testing.T, w wrappedCase) {
		cfg := Config{ReadTimeout: limitOf, HandshakeTimeout: handshakeOf}
		if w.isHidden() {
			cfg.HandshakeTimeout = 0
		}
		s := newWrappedSite(t, w, cfg, nil)
		requireSilentClosed(t, s, func() net.Conn { return s.dial(t) })
	})
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
		require.NoError(t, dead.SetReadDeadline(time.Now().Add(limitOf+room)))
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

// TestWrappedAndPlainConnectionsOfOneLoop has a layer for half of the connections of a loop.
func TestWrappedAndPlainConnectionsOfOneLoop(t *testing.T) {
	t.Parallel()
	forEachCase(t, append(fewCases, wrappedCase{layerInside, []layerKind{asForeign}}), func(t *testing.T, w wrappedCase) {
		cfg := Config{ReadTimeout: limitOf, HandshakeTimeout: handshakeOf}
		if w.isHidden() {
			cfg.HandshakeTimeout = 0
		} else {
			cfg.Goodbye = sayReason
		}
		s := newWrappedSite(t, w, cfg, nil)
		n := 0
		// The order is: living plain, silent wrapped, living wrapped, silent plain.
		requireSilentClosed(t, s, func() net.Conn {
			if n++; n%4 == 2 || n%4 == 3 {
				return s.dial(t)
			}
			return s.dialPlain(t)
		})
	})
}

// TestStackedLayers has TLS in TLS. The Reaper is outside of both layers, inside of both, or
// between them.
func TestStackedLayers(t *testing.T) {
	t.Parallel()
	cases := []wrappedCase{
		{layerOutside, []layerKind{asNetConn, asUnwrap}}, {layerOutside, []layerKind{asForeign, asNetConn}},
		{layerInside, []layerKind{asUnwrap, asNetConn}},
		{layerBetween, []layerKind{asForeign, asNetConn}},
	}
	forEachCase(t, cases, func(t *testing.T, w wrappedCase) {
		s := newWrappedSite(t, w, Config{ReadTimeout: limitOf, HandshakeTimeout: handshakeOf, Goodbye: sayReason}, nil)
		silent := s.dial(t)
		s.requireReady(t, silent)
		living := s.dial(t)
		s.requireReady(t, living)
		requireAlive(t, living, handshakeOf+limitOf)
		requireLastWords(t, silent, "bye: read idle")
		s.requireEnd(t, silent, reap.ReadIdle)
		s.guest(living.LocalAddr(), func(g *tlsGuest) { require.Empty(t, g.ends, "the client is alive") })
	})
}

// TestARecordInPieces sends one TLS record over two timeouts. The handler gets no byte of it before
// the end, but the client counts as alive.
func TestARecordInPieces(t *testing.T) {
	t.Parallel()
	forEachCase(t, fewCases[1:], func(t *testing.T, w wrappedCase) {
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
	forEachCase(t, fewCases[1:], func(t *testing.T, w wrappedCase) {
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
		began := time.Now()
		require.Less(t, awaitClose(t, c).Sub(began), limitOf+room)
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
	forEachCase(t, wrappedCases, func(t *testing.T, w wrappedCase) {
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
				if !ok {
					t.Error("the connection is not watched in OnOpen")
				}
				conn.Ready()
				return open(c)
			}
			s.traffic = func(c gnet.Conn) gnet.Action {
				if w.place == layerInside && isPong(c) {
					conn, ok := s.reaper.Conn(c)
					if !ok {
						t.Error("the connection is not watched in OnTraffic")
					}
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
		requireLastWords(t, silent, "PING\nPING\n")
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
	forEachCase(t, fewCases[1:], func(t *testing.T, w wrappedCase) {
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
