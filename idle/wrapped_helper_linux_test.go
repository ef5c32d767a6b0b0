package idle

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/engine"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
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

// stackedCases have two layers. The Reaper is outside of both, inside of both, or between them.
var stackedCases = []wrappedCase{
	{layerOutside, []layerKind{asNetConn, asUnwrap}}, {layerOutside, []layerKind{asForeign, asNetConn}},
	{layerInside, []layerKind{asUnwrap, asNetConn}}, {layerBetween, []layerKind{asForeign, asNetConn}},
}

// forEachCase runs a test with each case in parallel, as [fair.Run].
func forEachCase(t *testing.T, cases []wrappedCase, run func(testing.TB, wrappedCase)) {
	for _, w := range cases {
		fair.RunParallel(t, w.String(), func(t testing.TB) { run(t, w) })
	}
}

// plainSource is the address of the clients that a wrappedSite serves without a layer.
var plainSource = net.IPv4(127, 0, 0, 2)

// A wrappedSite is a server of one loop with a Reaper and layers. It calls Conn.Ready when a
// connection has sent a message, and echoes. The tests of handlers around or inside a Reaper use
// it.
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
func newWrappedSite(t testing.TB, w wrappedCase, cfg Config, setUp func(*wrappedSite, *Config)) *wrappedSite {
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
	for i, kind := range slices.Backward(w.as) {
		layer := kind.layer(h)
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
	s.addr = engine.Serve(t, h, s.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(1))
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
func (s *wrappedSite) dial(t testing.TB) net.Conn {
	t.Helper()
	_, cfg := tlsConfigs()
	return speakTLS(t, dial(t, s.addr), cfg.Clone(), len(s.as))
}

// dialPlain returns a client for which the server has no layer.
func (s *wrappedSite) dialPlain(t testing.TB) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: plainSource}}
	c, err := d.Dial("tcp", s.addr.String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// requireReady sends a message, and checks that Reaper.Conn has found the connection.
func (s *wrappedSite) requireReady(t testing.TB, c net.Conn) {
	t.Helper()
	require.NoError(t, exchangeMessage(c))
	s.guest(c.LocalAddr(), func(g *tlsGuest) {
		_, wrapped := c.(*tls.Conn)
		require.Equal(t, !wrapped || !s.isHidden(), g.ready, "whether Reaper.Conn finds the connection")
	})
}

// requireEnd waits for the OnClose of a client, and checks its reason.
func (s *wrappedSite) requireEnd(t testing.TB, c net.Conn, want error) {
	t.Helper()
	var ends []error
	eventually(t, "OnClose", func() bool {
		s.guest(c.LocalAddr(), func(g *tlsGuest) { ends = append([]error(nil), g.ends...) })
		return len(ends) > 0
	})
	require.Len(t, ends, 1, "OnClose is called once")
	require.ErrorIs(t, ends[0], want)
	ok := errors.As(ends[0], new(*ReapError))
	require.True(t, ok, "%T", ends[0])
}

// requireLastWords reads the stream of a client to its end, and compares it.
func requireLastWords(t testing.TB, c net.Conn, want string) {
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
func keepExchanging(t testing.TB, c net.Conn, stop <-chan struct{}) {
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

// A tlsLayer is a gnet.EventHandler that speaks TLS with the peers of the handler inside it. The
// inner handler gets a connection of the layer that reads and writes plain text. Layers can be
// stacked. A wrappedSite has them.
type tlsLayer struct {
	gnet.EventHandler                          // the handler inside
	dress             func(*tlsConn) gnet.Conn // returns the connection for the handler inside
	isPlain           func(c gnet.Conn) bool   // selects connections without TLS; nil selects none
}

// A tlsConn is the connection of a tlsLayer, with the methods that the tests call. It has no method
// that returns the connection inside: see netConnTLS and unwrapTLS. Owned by the loop goroutine;
// Close is safe for concurrent use.
//
// The TLS stream is read by a coroutine. It runs only while the loop goroutine waits for it in
// receive, and it touches nothing but the wire and the fields that are marked.
type tlsConn struct {
	gnet.Conn           // the connection inside
	self      gnet.Conn // the connection that the handler gets
	stream    *tls.Conn
	wire      *tlsWire
	resume    func() (struct{}, bool) // runs the coroutine until it needs more bytes
	stop      func()                  // ends the coroutine
	ctx       any
	closed    bool

	shaken bool   // set by the coroutine: the handshake is complete
	plain  []byte // appended by the coroutine: decrypted bytes that wait for the handler
	err    error  // set by the coroutine: the end of the stream
}

// A tlsWire is the net.Conn under TLS: two buffers in memory. Read parks the coroutine if no byte
// waits.
type tlsWire struct {
	net.Conn // nil
	in, out  []byte
	park     func(struct{}) bool // returns false once the connection is closed
	closed   bool
}

func (w *tlsWire) Read(p []byte) (int, error) {
	for len(w.in) == 0 {
		if w.closed = w.closed || !w.park(struct{}{}); w.closed {
			return 0, net.ErrClosed
		}
	}
	n := copy(p, w.in)
	w.in = w.in[n:]
	return n, nil
}

func (w *tlsWire) Write(p []byte) (int, error) {
	w.out = append(w.out, p...)
	return len(p), nil
}

func (w *tlsWire) SetWriteDeadline(time.Time) error { return nil }

func newTLSConn(c gnet.Conn) *tlsConn {
	tc := &tlsConn{Conn: c, wire: new(tlsWire)}
	cfg, _ := tlsConfigs()
	tc.stream = tls.Server(tc.wire, cfg)
	tc.resume, tc.stop = iter.Pull(func(yield func(struct{}) bool) {
		tc.wire.park = yield
		if tc.err = tc.stream.Handshake(); tc.err != nil {
			return
		}
		tc.shaken = true
		b := make([]byte, 16<<10)
		for tc.err == nil {
			var n int
			n, tc.err = tc.stream.Read(b)
			tc.plain = append(tc.plain, b[:n]...)
		}
	})
	return tc
}

// receive decrypts bytes of the peer and sends the answer of TLS, if any.
func (c *tlsConn) receive(b []byte) {
	c.wire.in = append(c.wire.in, b...)
	c.resume()
	_ = c.send()
}

// send gives the encrypted bytes to the connection inside. It may close it.
func (c *tlsConn) send() error {
	out := c.wire.out
	if c.wire.out = nil; len(out) == 0 {
		return nil
	}
	_, err := c.Conn.Write(out)
	return err
}

func (l *tlsLayer) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	if l.isPlain != nil && l.isPlain(c) {
		return l.EventHandler.OnOpen(c)
	}
	tc := newTLSConn(c)
	tc.self = l.dress(tc)
	c.SetContext(tc)
	out, action := l.EventHandler.OnOpen(tc.self)
	_, _ = tc.Write(out)
	return nil, action
}

func (l *tlsLayer) OnTraffic(c gnet.Conn) gnet.Action {
	tc, ok := c.Context().(*tlsConn)
	if !ok {
		return l.EventHandler.OnTraffic(c)
	}
	had := len(tc.plain)
	b, _ := c.Next(-1)
	tc.receive(b)
	action := gnet.None
	if !tc.closed && tc.shaken && len(tc.plain) > had {
		action = l.EventHandler.OnTraffic(tc.self)
	}
	if !tc.closed && tc.err != nil {
		return gnet.Close
	}
	return action
}

func (l *tlsLayer) OnClose(c gnet.Conn, err error) gnet.Action {
	tc, ok := c.Context().(*tlsConn)
	if !ok {
		return l.EventHandler.OnClose(c, err)
	}
	action := l.EventHandler.OnClose(tc.self, err)
	if tc.shaken {
		_ = tc.stream.CloseWrite()
		_ = tc.send()
	}
	tc.closed = true
	tc.stop()
	return action
}

func (c *tlsConn) Context() any         { return c.ctx }
func (c *tlsConn) SetContext(ctx any)   { c.ctx = ctx }
func (c *tlsConn) InboundBuffered() int { return len(c.plain) }

// Peek, Next and Discard are called with -1, for all bytes.

func (c *tlsConn) Peek(int) ([]byte, error) { return c.plain, nil }

func (c *tlsConn) Next(int) (b []byte, err error) {
	b, c.plain = c.plain, nil
	return b, nil
}

func (c *tlsConn) Discard(int) (int, error) {
	b, err := c.Next(-1)
	return len(b), err
}

func (c *tlsConn) Write(p []byte) (int, error) {
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case !c.shaken: // no test needs output from before the end of the handshake
		return len(p), nil
	}
	if n, err := c.stream.Write(p); err != nil {
		return n, err
	}
	return len(p), c.send()
}

// A netConnTLS is a tlsConn with a NetConn that returns the connection inside.
type netConnTLS struct{ *tlsConn }

func (c *netConnTLS) NetConn() gnet.Conn { return c.Conn }

// An unwrapTLS is a tlsConn with an Unwrap that returns the connection inside.
type unwrapTLS struct{ *tlsConn }

func (c *unwrapTLS) Unwrap() gnet.Conn { return c.Conn }

// A layerKind is the way in which a wrapper exposes the connection inside.
type layerKind string

const (
	asNetConn layerKind = "NetConn"
	asUnwrap  layerKind = "Unwrap"
	asForeign layerKind = "foreign" // not at all
)

// layer returns a tlsLayer around a handler.
func (w layerKind) layer(h gnet.EventHandler) *tlsLayer {
	return &tlsLayer{EventHandler: h, dress: func(c *tlsConn) gnet.Conn {
		switch w {
		case asNetConn:
			return &netConnTLS{c}
		case asUnwrap:
			return &unwrapTLS{c}
		default:
			return c
		}
	}}
}

// tlsConfigs returns configurations of a server, and of a client that trusts its certificate.
var tlsConfigs = sync.OnceValues(func() (server, client *tls.Config) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &tls.Config{Certificates: s.TLS.Certificates}, &tls.Config{RootCAs: roots, ServerName: "example.com"}
})

// speakTLS does the handshake of a client, one for each layer. The connection is closed when the
// test ends.
func speakTLS(t testing.TB, c net.Conn, cfg *tls.Config, layers int) net.Conn {
	t.Helper()
	for range layers {
		stream := tls.Client(c, cfg)
		require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		require.NoError(t, stream.Handshake())
		require.NoError(t, c.SetDeadline(time.Time{}))
		c = stream
	}
	t.Cleanup(func() { c.Close() })
	return c
}
