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

// TestTheGoodbyeIsEncrypted reads the goodbye as a TLS client: application data, then the end of
// the stream. Connections that never complete the TLS handshake are closed as well. Goodbye and
// OnIdle get the connection of the layer.
func TestTheGoodbyeIsEncrypted(t *testing.T) {
	t.Parallel()
	forEachCase(t, wrappedCases, func(t testing.TB, w wrappedCase) {
		s := newWrappedSite(t, w, Config{ReadTimeout: limitOf}, func(s *wrappedSite, cfg *Config) {
			check := func(call string, c gnet.Conn) {
				s.guest(c.RemoteAddr(), func(g *tlsGuest) {
					isKnown := w.place == layerOutside || g.ready
					assert.False(t, isKnown && c != g.conn, "%s got %T, want %T", call, c, g.conn)
				})
			}
			s.onIdle = func(c gnet.Conn, _ Event) gnet.Action { check("OnIdle", c); return gnet.Close }
			cfg.Goodbye = func(c gnet.Conn, reason *ReapError) []byte {
				check("Goodbye", c)
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
