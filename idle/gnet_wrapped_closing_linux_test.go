package idle

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/reap"
)

// TestTheGoodbyeIsEncrypted reads the goodbye as a TLS client: application data, then the end of
// the stream. Connections that never complete the TLS handshake are closed as well.
func TestTheGoodbyeIsEncrypted(t *testing.T) {
	t.Parallel()
	forEachCase(t, wrappedCases, func(t *testing.T, w wrappedCase) {
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
	forEachCase(t, wrappedCases, func(t *testing.T, w wrappedCase) {
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
	forEachCase(t, fewCases, func(t *testing.T, w wrappedCase) {
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
	forEachCase(t, fewCases, func(t *testing.T, w wrappedCase) {
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

// TestAHandleShowsTheOuterConnection has a handler inside a layer. It takes the handle of its
// connection. From then on Goodbye gets the connection of the layer.
func TestAHandleShowsTheOuterConnection(t *testing.T) {
	t.Parallel()
	cases := []wrappedCase{{layerInside, []layerKind{asUnwrap, asNetConn}}}
	forEachCase(t, cases, func(t *testing.T, w wrappedCase) {
		s := newWrappedSite(t, w, Config{MaxAge: 2 * limitOf, Goodbye: sayReason}, func(s *wrappedSite, _ *Config) {
			s.traffic = func(c gnet.Conn) gnet.Action {
				_, _ = c.Discard(-1)
				_, ok := s.reaper.Conn(c)
				assert.True(t, ok, "the connection is not watched")
				return gnet.None
			}
		})
		c := s.dial(t)
		send(t, c, "x")
		require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
		got, err := io.ReadAll(c)
		assert.NoError(t, err)
		assert.Equal(t, "bye: max age", string(got))
		s.requireEnd(t, c, reap.MaxAge)
	})
}
