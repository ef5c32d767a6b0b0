package idle

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
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
func (s *wrappedSite) dial(t testing.TB) net.Conn {
	t.Helper()
	return speakTLS(t, dial(t, s.addr), clientTLS(), len(s.as))
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

// requireAlive exchanges messages for a time.
func requireAlive(t testing.TB, c net.Conn, length time.Duration) {
	t.Helper()
	stop := make(chan struct{})
	time.AfterFunc(length, func() { close(stop) })
	keepExchanging(t, c, stop)
}
