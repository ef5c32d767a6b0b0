package idle

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/syncbuf"
)

// A layerPlace is the place of the layers of a server.
type layerPlace string

const (
	layerOutside layerPlace = "outside" // gnet calls the layer, the layer calls the Reaper
	layerInside  layerPlace = "inside"  // gnet calls the Reaper, the Reaper calls the layer
	layerBetween layerPlace = "between" // a layer, the Reaper, a layer
)

// A wrappedCase is one way to combine a Reaper with layers.
type wrappedCase struct {
	place layerPlace
	as    []layerKind // one for each layer, the outermost layer first
}

func (w wrappedCase) String() string {
	names := []string{string(w.place)}
	for _, as := range w.as {
		names = append(names, string(as))
	}
	return strings.Join(names, " ")
}

// isHidden reports whether the Reaper cannot find the connection that the handler gets.
func (w wrappedCase) isHidden() bool { return w.place == layerInside && w.as[0] == asForeign }

var wrappedCases = []wrappedCase{
	{layerOutside, []layerKind{asNetConn}}, {layerOutside, []layerKind{asUnwrap}}, {layerOutside, []layerKind{asForeign}},
	{layerInside, []layerKind{asNetConn}}, {layerInside, []layerKind{asUnwrap}}, {layerInside, []layerKind{asForeign}},
}

// fewCases are for tests in which the wrappers differ little.
var fewCases = []wrappedCase{
	{layerOutside, []layerKind{asNetConn}}, {layerOutside, []layerKind{asForeign}}, {layerInside, []layerKind{asUnwrap}},
}

// forEachCase runs a test with each case in parallel.
func forEachCase(t *testing.T, cases []wrappedCase, run func(*testing.T, wrappedCase)) {
	for _, w := range cases {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			run(t, w)
		})
	}
}

// plainSource is the address of the clients that a wrappedSite serves without a layer.
var plainSource = net.IPv4(127, 0, 0, 2)

// A wrappedSite is a server of one loop with a Reaper and layers. It calls Conn.Ready when a
// connection has sent a message, and echoes.
type wrappedSite struct {
	*echo
	wrappedCase
	reaper *Reaper
	addr   net.Addr
	onIdle func(gnet.Conn, Event) gnet.Action

	mu     sync.Mutex
	guests map[string]*tlsGuest // guarded by mu; by the address of the client
}

// A tlsGuest is the record of one connection.
type tlsGuest struct {
	conn  gnet.Conn // the connection that OnOpen got
	ready bool      // whether Reaper.Conn has found the connection
	ends  []error   // the errors that OnClose got
}

// sayReason is a Goodbye that tells the reason.
func sayReason(_ gnet.Conn, reason *ReapError) []byte { return []byte("bye: " + reason.Reason.Error()) }

// newWrappedSite runs a server. setUp may change its handler and the Config.
func newWrappedSite(t *testing.T, w wrappedCase, cfg Config, setUp func(*wrappedSite, *Config)) *wrappedSite {
	t.Helper()
	s := &wrappedSite{echo: newEcho(), wrappedCase: w, guests: map[string]*tlsGuest{}}
	s.open = func(c gnet.Conn) ([]byte, gnet.Action) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.guests[c.RemoteAddr().String()] = &tlsGuest{conn: c}
		return nil, gnet.None
	}
	s.traffic = func(c gnet.Conn) gnet.Action {
		conn, watched := s.reaper.Conn(c)
		conn.Ready()
		s.guest(c.RemoteAddr(), func(g *tlsGuest) { g.ready = watched })
		b, _ := c.Next(-1)
		_, _ = c.Write(b)
		return gnet.None
	}
	s.closed = func(c gnet.Conn, err error) gnet.Action {
		s.guest(c.RemoteAddr(), func(g *tlsGuest) {
			g.ends = append(g.ends, err)
			if g.conn != c {
				t.Errorf("OnClose got %T, and OnOpen had got %T", c, g.conn)
			}
		})
		return gnet.None
	}
	cfg.Tick = tickOf
	if setUp != nil {
		setUp(s, &cfg)
	}

	cfg.OnIdle = s.onIdle
	var h gnet.EventHandler = s.echo
	reap := func() {
		s.reaper = middleware(t, h, cfg)
		h = s.reaper
	}
	if w.place == layerOutside {
		reap()
	}
	for i := len(w.as) - 1; i >= 0; i-- {
		layer := w.as[i].layer(h)
		layer.isPlain = func(c gnet.Conn) bool {
			addr, ok := c.RemoteAddr().(*net.TCPAddr)
			return ok && addr.IP.Equal(plainSource)
		}
		h = layer
		if w.place == layerBetween && i == 1 {
			reap()
		}
	}
	if w.place == layerInside {
		reap()
	}
	s.addr = serve(t, h, s.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(1))
	return s
}

// saysGoodbye reports whether the Config has a Goodbye.
func (s *wrappedSite) saysGoodbye() bool { return s.reaper.Config().Goodbye != nil }

// guest passes the record of a client to a function.
func (s *wrappedSite) guest(client net.Addr, use func(*tlsGuest)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	use(s.guests[client.String()])
}

// conn returns the connection that OnOpen got for a client.
func (s *wrappedSite) conn(client net.Addr) (c gnet.Conn) {
	s.guest(client, func(g *tlsGuest) { c = g.conn })
	return c
}

// dial returns a client that speaks TLS once for each layer of the server.
func (s *wrappedSite) dial(t *testing.T) net.Conn {
	t.Helper()
	return speakTLS(t, dial(t, s.addr), clientTLS(), len(s.as))
}

// dialPlain returns a client for which the server has no layer.
func (s *wrappedSite) dialPlain(t *testing.T) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: plainSource}}
	c, err := d.Dial("tcp", s.addr.String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// requireReady sends a message, and checks that Reaper.Conn has found the connection.
func (s *wrappedSite) requireReady(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, exchangeMessage(c))
	s.guest(c.LocalAddr(), func(g *tlsGuest) {
		_, wrapped := c.(*tls.Conn)
		require.Equal(t, !wrapped || !s.isHidden(), g.ready, "whether Reaper.Conn finds the connection")
	})
}

// requireEnd waits for the OnClose of a client, and checks its reason.
func (s *wrappedSite) requireEnd(t *testing.T, c net.Conn, want error) {
	t.Helper()
	var ends []error
	eventually(t, "OnClose", func() bool {
		s.guest(c.LocalAddr(), func(g *tlsGuest) { ends = append([]error(nil), g.ends...) })
		return len(ends) > 0
	})
	require.Len(t, ends, 1, "OnClose is called once")
	require.ErrorIs(t, ends[0], want)
	_, ok := errors.AsType[*ReapError](ends[0])
	require.True(t, ok, "%T", ends[0])
}

// requireLastWords reads the stream of a client to its end, and compares it.
func requireLastWords(t *testing.T, c net.Conn, want string) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	got, err := io.ReadAll(c)
	require.NoError(t, err, "the stream ends without an error")
	require.Equal(t, want, string(got))
}

// exchangeMessage sends a message and reads its echo.
func exchangeMessage(c net.Conn) error {
	if _, err := c.Write([]byte("echo")); err != nil {
		return err
	}
	b := make([]byte, 4)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != "echo" {
		return fmt.Errorf("the echo is %q", b)
	}
	return nil
}

// keepExchanging exchanges messages until stop is closed. It reports an error if the client is cut
// off.
func keepExchanging(t *testing.T, c net.Conn, stop <-chan struct{}) {
	for {
		if err := exchangeMessage(c); err != nil {
			t.Errorf("a living client was cut off: %v", err)
			return
		}
		select {
		case <-stop:
			return
		case <-time.After(limitOf / 8):
		}
	}
}

// requireAlive exchanges messages for a time.
func requireAlive(t *testing.T, c net.Conn, length time.Duration) {
	t.Helper()
	stop := make(chan struct{})
	time.AfterFunc(length, func() { close(stop) })
	keepExchanging(t, c, stop)
}

// handshakeOf is longer than the handshakes of a test take, and shorter than the life of its clients.
const handshakeOf = 2 * limitOf

// TestLivingTLSClientsAreNotCutOff checks the promise: living peers stay connected, silent peers are
// closed with the reason. The handler ends the handshake, inside or outside of the layer.
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
func requireSilentClosed(t *testing.T, s *wrappedSite, dial func() net.Conn) {
	t.Helper()
	const n = 4 // clients of each sort
	var living, silent []net.Conn
	var sending, waiting sync.WaitGroup
	stop := make(chan struct{})
	defer sending.Wait()
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
		s.requireEnd(t, c, ReadIdle)
	}
	eventually(t, "the silent clients are counted", func() bool { return s.reaper.Stats().Reaped.Of(ReadIdle) == n })
	for _, c := range living {
		s.guest(c.LocalAddr(), func(g *tlsGuest) { require.Empty(t, g.ends, "the client is alive") })
	}
	require.EqualValues(t, n, s.reaper.Stats().Reaped.Total())
}

// TestTheGoodbyeIsEncrypted reads the goodbye as a TLS client: application data, then the end of the
// stream. Connections that never complete the TLS handshake are closed as well.
func TestTheGoodbyeIsEncrypted(t *testing.T) {
	t.Parallel()
	forEachCase(t, wrappedCases, func(t *testing.T, w wrappedCase) {
		s := newWrappedSite(t, w, Config{ReadTimeout: limitOf}, func(s *wrappedSite, cfg *Config) {
			cfg.Goodbye = func(c gnet.Conn, reason *ReapError) []byte {
				s.guest(c.RemoteAddr(), func(g *tlsGuest) {
					isKnown := w.place == layerOutside || g.ready
					if isKnown && c != g.conn {
						t.Errorf("Goodbye got %T, want %T", c, g.conn)
					}
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
			s.requireEnd(t, c, ReadIdle)
		}
	})
}

// TestMaxAgeOfATLSClient reads the goodbye that is sent at the beginning of the grace.
func TestMaxAgeOfATLSClient(t *testing.T) {
	t.Parallel()
	cases := []wrappedCase{{layerOutside, []layerKind{asUnwrap}}}
	forEachCase(t, cases, func(t *testing.T, w wrappedCase) {
		s := newWrappedSite(t, w, Config{MaxAge: 2 * limitOf, MaxAgeGrace: limitOf / 2, Goodbye: sayReason}, nil)
		c := s.dial(t)
		s.requireReady(t, c)
		requireLastWords(t, c, "bye: max age")
		s.requireEnd(t, c, MaxAge)
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
		s.requireEnd(t, silent, HeartbeatTimeout)
		eventually(t, "two pings are answered", func() bool { return pings.Load() >= 2 })
		s.guest(living.LocalAddr(), func(g *tlsGuest) { require.Empty(t, g.ends, "the client answers pings") })
		if anyByte {
			s.guest(talking.LocalAddr(), func(g *tlsGuest) { require.Empty(t, g.ends, "the client sends bytes") })
		} else {
			s.requireEnd(t, talking, HeartbeatTimeout)
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
		s.requireEnd(t, c, ReadIdle)
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
		all, err := list(t.Context(), s.reaper, Oldest, 10)
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
		s.requireEnd(t, kicked, Kicked)
		require.ErrorIs(t, s.reaper.Kick(t.Context(), id), ErrNotWatched)
		require.NoError(t, exchangeMessage(stays))
		require.Equal(t, 1, s.reaper.Connections())
	})
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
		requireSilentClosed(t, s, func() net.Conn { // living plain, silent wrapped, living wrapped, silent plain
			if n++; n%4 == 2 || n%4 == 3 {
				return s.dial(t)
			}
			return s.dialPlain(t)
		})
	})
}

// TestStackedLayers has TLS in TLS. The Reaper is outside of both layers, inside of both, or between
// them.
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
		s.requireEnd(t, silent, ReadIdle)
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
		_, err := c.Write([]byte(message))
		require.NoError(t, err)
		got := make([]byte, len(message))
		_, err = io.ReadFull(c, got)
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
		_, err := c.Write([]byte("partial"))
		require.NoError(t, err)
		began := time.Now()
		require.Less(t, awaitClose(t, c).Sub(began), limitOf+room)
		s.requireEnd(t, c, ReadIdle)
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
		_, err := c.Write([]byte("x"))
		require.NoError(t, err)
		s.requireEnd(t, c, OverLimit)
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

// TestDrainTLSClients reads the goodbye of Drain.
func TestDrainTLSClients(t *testing.T) {
	t.Parallel()
	forEachCase(t, fewCases[1:], func(t *testing.T, w wrappedCase) {
		s := newWrappedSite(t, w, Config{ReadTimeout: time.Minute, Goodbye: sayReason}, nil)
		a, b := s.dial(t), s.dial(t)
		s.requireReady(t, a)
		s.requireReady(t, b)
		require.NoError(t, s.reaper.Drain(0, limitOf))
		for _, c := range []net.Conn{a, b} {
			requireLastWords(t, c, "bye: drained")
			s.requireEnd(t, c, Drained)
		}
		require.Zero(t, s.reaper.Connections())
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
				if _, ok := s.reaper.Conn(c); !ok {
					t.Error("the connection is not watched")
				}
				return gnet.None
			}
		})
		c := s.dial(t)
		_, err := c.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
		got, err := io.ReadAll(c)
		assert.NoError(t, err)
		assert.Equal(t, "bye: max age", string(got))
		s.requireEnd(t, c, MaxAge)
	})
}

// TestAForeignConnectionIsToldOfOnce has a handler whose connections the Reaper cannot find.
func TestAForeignConnectionIsToldOfOnce(t *testing.T) {
	t.Parallel()
	var log syncbuf.Buffer
	cfg := Config{ReadTimeout: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	s := newWrappedSite(t, wrappedCase{layerInside, []layerKind{asForeign}}, cfg, func(s *wrappedSite, _ *Config) {
		s.traffic = func(c gnet.Conn) gnet.Action {
			b, _ := c.Next(-1)
			conn, ok := s.reaper.Conn(c)
			if ok {
				t.Error("Conn has found a connection")
			}
			conn.Touch()
			_, _ = c.Write(b)
			return gnet.None
		}
	})
	for range 3 {
		require.NoError(t, exchangeMessage(s.dial(t)))
	}
	time.Sleep(1100 * time.Millisecond) // it is once per Reaper, and not once per second
	require.NoError(t, exchangeMessage(s.dial(t)))
	var warnings []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, "NetConn") {
			warnings = append(warnings, line)
		}
	}
	require.Len(t, warnings, 1)
	require.Regexp(t, "NetConn|Unwrap", warnings[0], "it says what to do")
}

// TestNoWarningAboutClosedConnections calls Reaper.Conn for connections that are no longer watched.
func TestNoWarningAboutClosedConnections(t *testing.T) {
	t.Parallel()
	cases := []wrappedCase{{layerOutside, []layerKind{asUnwrap}}, {layerInside, []layerKind{asNetConn}}}
	forEachCase(t, cases, func(t *testing.T, w wrappedCase) {
		var log syncbuf.Buffer
		cfg := Config{ReadTimeout: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		s := newWrappedSite(t, w, cfg, func(s *wrappedSite, _ *Config) {
			s.closed = func(c gnet.Conn, _ error) gnet.Action {
				if _, ok := s.reaper.Conn(c); ok {
					t.Error("Conn has found a connection that is closed")
				}
				return gnet.None
			}
		})
		wrapped, plain := s.dial(t), s.dialPlain(t)
		s.requireReady(t, wrapped)
		require.NoError(t, exchangeMessage(plain))
		require.NoError(t, wrapped.Close())
		require.NoError(t, plain.Close())
		eventually(t, "both connections are closed", func() bool { return len(s.reasons()) == 2 })
		require.NotContains(t, log.String(), "NetConn")
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

// A boxedConn is a wrapper that is not a pointer. Each conversion to gnet.Conn gives it another
// address.
type boxedConn struct {
	gnet.Conn
	_ [2]int
}

func (v boxedConn) Unwrap() gnet.Conn { return v.Conn }

// TestAWrapperForEachEvent has layers that make a new wrapper for each event.
func TestAWrapperForEachEvent(t *testing.T) {
	t.Parallel()
	wraps := map[string]func(gnet.Conn) gnet.Conn{
		"Unwrap":  func(c gnet.Conn) gnet.Conn { return boxedConn{Conn: c} },
		"foreign": func(c gnet.Conn) gnet.Conn { return struct{ gnet.Conn }{c} },
	}
	for name, wrap := range wraps {
		for _, place := range []layerPlace{layerOutside, layerInside} {
			t.Run(fmt.Sprint(place, " ", name), func(t *testing.T) {
				t.Parallel()
				hidden := name == "foreign" && place == layerInside
				e := newEcho()
				var r *Reaper
				e.traffic = func(c gnet.Conn) gnet.Action {
					b, _ := c.Next(-1)
					_, _ = c.Write(b)
					conn, watched := r.Conn(c)
					if watched == hidden {
						t.Errorf("Conn reports %v", watched)
					}
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
				addr := serve(t, h, e.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(1))
				silent := dial(t, addr)
				require.NoError(t, exchangeMessage(silent))
				living := dial(t, addr)
				requireAlive(t, living, 2*limitOf)
				requireLastWords(t, silent, "bye: read idle")
				require.Len(t, e.reasons(), 1)
				require.ErrorIs(t, e.reasons()[0], ReadIdle)
				require.Equal(t, 1, r.Connections())
			})
		}
	}
}

// A shellConn is a wrapper whose NetConn returns another connection than the embedded one.
type shellConn struct {
	gnet.Conn
	inside gnet.Conn
}

func (s *shellConn) NetConn() gnet.Conn { return s.inside }

// TestConnFindsTheConnectionInsideWrappers needs no server.
func TestConnFindsTheConnectionInsideWrappers(t *testing.T) {
	r := middleware(t, newEcho(), Config{ReadTimeout: time.Minute, MinRate: MinRate{BytesPerSecond: 1}})
	c := newScriptedConn(newScriptedLoop(), 1)
	r.OnOpen(c)
	defer r.OnClose(c, nil)
	deep := gnet.Conn(c)
	for range 20 {
		deep = &shellConn{deep, deep}
	}
	itself := &shellConn{Conn: c}
	itself.inside = itself
	mutual := &shellConn{Conn: c}
	mutual.inside = &shellConn{c, mutual}
	for _, test := range []struct {
		name  string
		conn  gnet.Conn
		found bool
	}{
		{"gnet's", c, true},
		{"NetConn", &shellConn{c, c}, true},
		{"Unwrap", boxedConn{Conn: c}, true},
		{"Unwrap of NetConn", boxedConn{Conn: &shellConn{c, c}}, true},
		{"many", deep, true},
		{"none", struct{ gnet.Conn }{c}, false},
		{"nil inside", &shellConn{c, nil}, false},
		{"itself inside", itself, false},
		{"each other inside", mutual, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			done := make(chan bool, 1)
			go func() {
				_, found := r.Conn(test.conn)
				done <- found
			}()
			select {
			case found := <-done:
				assert.Equal(t, test.found, found)
			case <-time.After(10 * time.Second):
				t.Fatal("Conn does not return")
			}
		})
	}
}
