package nettest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/rpc"
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/emersion/go-imap/backend/memory"
	imap "github.com/emersion/go-imap/server"
	"github.com/emersion/go-smtp"
	"github.com/gin-gonic/gin"
	"github.com/gliderlabs/ssh"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/gorilla/websocket"
	"github.com/hashicorp/yamux"
	labstack "github.com/labstack/echo/v4"
	"github.com/miekg/dns"
	"github.com/pires/go-proxyproto"
	"github.com/soheilhy/cmux"
	"github.com/stretchr/testify/require"
	"github.com/things-go/go-socks5"
	"github.com/tidwall/redcon"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"
	cryptossh "golang.org/x/crypto/ssh"
	"golang.org/x/net/netutil"
	"golang.org/x/net/proxy"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/reap"
)

// A setUp is a server that others wrote, and a client for it.
type setUp struct {
	// serve serves until the listener is closed.
	serve func(l *listener)
	// dial connects a client, which sends a request and waits for the answer with each call. Wait
	// is true for one that takes longer than the timeout.
	dial func(t testing.TB, addr string) (ask func(wait bool) error)
	// waits says that there are such requests.
	waits  bool
	unwrap func(net.Conn) net.Conn
	below  func(net.Listener) net.Listener // wraps the listener of package net
}

var setUps = map[string]setUp{
	"net/http":             {serve: attached(func(h http.Handler) http.Handler { return h }), dial: dialHTTP("http"), waits: true},
	"gin":                  {serve: attached(ginOf), dial: dialHTTP("http"), waits: true},
	"echo":                 {serve: attached(echoOf), dial: dialHTTP("http"), waits: true},
	"httputil":             {serve: attached(proxyOf), dial: dialHTTP("http"), waits: true},
	"HTTP/1 with TLS":      {serve: func(l *listener) { serveHTTP(l, &http.Server{Handler: patient}) }, dial: dialHTTP("https"), waits: true},
	"HTTP/2":               {serve: func(l *listener) { serveHTTP(l, &http.Server{Handler: patient}) }, dial: dialHTTP("h2"), waits: true},
	"HTTP/2 without TLS":   {serve: attached(ginOf), dial: dialHTTP("h2c"), waits: true},
	"connect":              {serve: attached(connectOf), dial: dialConnect, waits: true},
	"fasthttp":             {serve: serveFast, dial: dialHTTP("http"), waits: true},
	"fiber":                {serve: serveFiber, dial: dialHTTP("http"), waits: true},
	"cmux":                 {serve: serveMux, dial: dialHTTP("http"), waits: true, unwrap: unwrapMux},
	"proxyproto":           {serve: attached(ginOf), dial: dialHTTP("http"), waits: true, unwrap: unwrapProxy, below: proxyListener},
	"LimitListener":        {serve: attached(ginOf), dial: dialHTTP("http"), waits: true, unwrap: unwrapEmbedded, below: limitListener},
	"WebSocket of gorilla": {serve: attached(gorillaOf), dial: dialWebSocket},
	"WebSocket of gobwas":  {serve: attached(gobwasOf), dial: dialWebSocket},
	"redcon":               {serve: serveRedis, dial: dialLines("PING", "WAIT"), waits: true},
	"smtp":                 {serve: serveSMTP, dial: dialLines("NOOP", "")},
	"imap":                 {serve: serveIMAP, dial: dialLines("a NOOP", "")},
	"ssh":                  {serve: serveSSH, dial: dialSSH},
	"dns":                  {serve: serveDNS, dial: dialDNS},
	"socks5":               {serve: serveSOCKS, dial: dialSOCKS},
	"yamux":                {serve: eachConn(serveYamux), dial: dialYamux},
	"net/rpc":              {serve: eachConn(func(l *listener, c net.Conn) { rpcFor(l, c).ServeConn(c) }), dial: dialRPC, waits: true},
}

// TestServersOfOthers has, for each server, a client that sends a request in each beat, one that
// waits for an answer for longer than the timeout, and one that falls silent. Only that one is
// closed, and in time.
func TestServersOfOthers(t *testing.T) {
	for name, s := range setUps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			if s.below != nil {
				inner = s.below(inner)
			}
			l := listenOn(t, inner, idlenet.Config{ReadTimeout: timeout, CloseGrace: beat, Unwrap: s.unwrap})
			s.serve(l)
			living, silent := s.dial(t, l.address()), s.dial(t, l.address())
			require.NoError(t, silent(false))
			mute, err := net.Dial("tcp", l.address()) // it never sends a byte
			require.NoError(t, err)
			defer mute.Close()
			waited := make(chan error, 1)
			if s.waits {
				go func() { waited <- s.dial(t, l.address())(true) }()
			} else {
				waited <- nil
			}
			everyBeat(long+beat, func() { require.NoError(t, living(false)) })
			require.NoError(t, <-waited)
			ended := l.reasons()
			require.NotEmpty(t, ended)
			require.Less(t, len(ended), 4, "the silent ones, and perhaps the one that has waited, since then")
			require.NoError(t, mute.SetReadDeadline(time.Now().Add(timeout)))
			_, err = io.Copy(io.Discard, mute)
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
			for _, reason := range ended {
				require.Equal(t, reap.ReadIdle, reason)
			}
			require.NoError(t, living(false))
			eventually(t, "the server has closed it", func() bool { return l.Connections() < int(l.Stats().Opened) })
		})
	}
}

// patient answers at once, or after more than the timeout for the path /wait.
var patient = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/wait" {
		time.Sleep(long)
	}
	_, _ = io.WriteString(w, "done")
})

// attached serves HTTP with a framework, and HTTP/2 without TLS too.
func attached(framework func(http.Handler) http.Handler) func(*listener) {
	return func(l *listener) {
		server := &http.Server{Handler: framework(patient), Protocols: new(http.Protocols)}
		server.Protocols.SetHTTP1(true)
		server.Protocols.SetUnencryptedHTTP2(true)
		l.AttachHTTP(server)
		go func() { _ = server.Serve(l) }()
		l.t.Cleanup(func() { _ = server.Close() })
	}
}

func ginOf(h http.Handler) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Any("/*path", gin.WrapH(h))
	return engine
}

func echoOf(h http.Handler) http.Handler {
	e := labstack.New()
	e.Any("/*", labstack.WrapHandler(h))
	return e
}

// proxyOf has a backend of its own, which lives as long as the process.
func proxyOf(h http.Handler) http.Handler {
	backend, err := url.Parse(httptest.NewServer(h).URL)
	if err != nil {
		panic(err)
	}
	return httputil.NewSingleHostReverseProxy(backend)
}

// connectOf has two procedures of gRPC over HTTP/1.
func connectOf(http.Handler) http.Handler {
	mux := http.NewServeMux()
	for path, takes := range map[string]time.Duration{"/now": 0, "/wait": long} {
		mux.Handle(path, connect.NewUnaryHandler(path, func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
			time.Sleep(takes)
			return connect.NewResponse(&emptypb.Empty{}), nil
		}))
	}
	return mux
}

func dialConnect(_ testing.TB, addr string) func(bool) error {
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	return func(wait bool) error {
		path := map[bool]string{false: "/now", true: "/wait"}[wait]
		_, err := connect.NewClient[emptypb.Empty, emptypb.Empty](client, "http://"+addr+path).
			CallUnary(context.Background(), connect.NewRequest(&emptypb.Empty{}))
		return err
	}
}

// dialHTTP returns a client of net/http with one connection.
func dialHTTP(protocol string) func(testing.TB, string) func(bool) error {
	return func(_ testing.TB, addr string) func(bool) error {
		transport := &http.Transport{MaxConnsPerHost: 1, TLSClientConfig: clientTLS(), Protocols: new(http.Protocols)}
		scheme := "https"
		switch protocol {
		case "h2":
			transport.Protocols.SetHTTP2(true)
		case "h2c":
			transport.Protocols.SetUnencryptedHTTP2(true)
			scheme = "http"
		default:
			transport.Protocols.SetHTTP1(true)
			scheme = protocol
		}
		client := &http.Client{Transport: transport}
		return func(wait bool) error {
			if got := get(client, scheme+"://"+addr+map[bool]string{true: "/wait"}[wait]); got != "done" {
				return errors.New(got)
			}
			return nil
		}
	}
}

func serveFast(l *listener) {
	handler := fasthttpadaptor.NewFastHTTPHandler(patient)
	server := &fasthttp.Server{ConnState: stateOfFast(l), Handler: func(ctx *fasthttp.RequestCtx) {
		l.ConnState(ctx.Conn(), http.StateActive)
		handler(ctx)
	}}
	go func() { _ = server.Serve(l) }()
	l.t.Cleanup(func() { _ = server.Shutdown() })
}

// stateOfFast leaves out StateActive, of which handlers tell: fasthttp calls a connection active
// before it has sent a byte.
func stateOfFast(l *listener) func(net.Conn, fasthttp.ConnState) {
	return func(c net.Conn, state fasthttp.ConnState) {
		if state != fasthttp.StateActive {
			l.ConnState(c, http.ConnState(state))
		}
	}
}

func serveFiber(l *listener) {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(func(c *fiber.Ctx) error {
		l.ConnState(c.Context().Conn(), http.StateActive)
		return c.Next()
	})
	app.All("/*", adaptor.HTTPHandler(patient))
	app.Server().ConnState = stateOfFast(l)
	go func() { _ = app.Listener(l) }()
	l.t.Cleanup(func() { _ = app.Shutdown() })
}

// serveMux has the multiplexer above the Listener.
func serveMux(l *listener) {
	mux := cmux.New(l)
	matched := mux.Match(cmux.HTTP1Fast())
	server := &http.Server{Handler: patient}
	l.AttachHTTP(server)
	go func() { _ = server.Serve(matched) }()
	go func() { _ = mux.Serve() }()
	l.t.Cleanup(func() { _ = server.Close() })
}

func unwrapMux(c net.Conn) net.Conn {
	if c, is := c.(*cmux.MuxConn); is {
		return c.Conn
	}
	return nil
}

// proxyListener takes connections with a PROXY header and without one.
func proxyListener(inner net.Listener) net.Listener {
	return &proxyproto.Listener{Listener: inner, ConnPolicy: func(proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
		return proxyproto.USE, nil
	}}
}

func unwrapProxy(c net.Conn) net.Conn {
	if c, is := c.(*proxyproto.Conn); is {
		return c.Raw()
	}
	return nil
}

func limitListener(inner net.Listener) net.Listener { return netutil.LimitListener(inner, 100) }

// unwrapEmbedded is for a type without a name, which embeds its connection.
func unwrapEmbedded(c net.Conn) net.Conn {
	v := reflect.Indirect(reflect.ValueOf(c))
	if v.Kind() != reflect.Struct || !v.FieldByName("Conn").IsValid() {
		return nil
	}
	c, _ = v.FieldByName("Conn").Interface().(net.Conn)
	return c
}

func gorillaOf(http.Handler) http.Handler {
	var upgrader websocket.Upgrader
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		for err == nil {
			var text []byte
			_, text, err = c.ReadMessage()
			err = errors.Join(err, c.WriteMessage(websocket.TextMessage, text))
		}
	})
}

func gobwasOf(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			return
		}
		defer c.Close()
		for err == nil {
			var text []byte
			text, err = wsutil.ReadClientText(c)
			err = errors.Join(err, wsutil.WriteServerText(c, text))
		}
	})
}

func dialWebSocket(t testing.TB, addr string) func(bool) error {
	c, _, err := websocket.DefaultDialer.Dial("ws://"+addr, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return func(bool) error {
		if err := c.WriteMessage(websocket.TextMessage, []byte("beat")); err != nil {
			return err
		}
		_, _, err := c.ReadMessage()
		return err
	}
}

// dialLines returns a client of a protocol with lines: one that is answered at once, and one that
// waits.
func dialLines(now, waits string) func(testing.TB, string) func(bool) error {
	return func(t testing.TB, addr string) func(bool) error {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		r := bufio.NewReader(c)
		return func(wait bool) error {
			if _, err := fmt.Fprintf(c, "%s\r\n", map[bool]string{false: now, true: waits}[wait]); err != nil {
				return err
			}
			for {
				line, err := r.ReadString('\n')
				if isGreeting := strings.HasPrefix(line, "* ") || strings.HasPrefix(line, "220 "); !isGreeting {
					return err
				}
			}
		}
	}
}

// serveRedis holds a connection while a command is being executed.
func serveRedis(l *listener) {
	go func() {
		_ = redcon.Serve(l, func(c redcon.Conn, cmd redcon.Command) {
			if conn, err := l.Conn(c.NetConn()); err == nil {
				conn.Hold()
				defer conn.Release()
			}
			if string(cmd.Args[0]) == "WAIT" {
				time.Sleep(long)
			}
			c.WriteString("OK")
		}, nil, nil)
	}()
}

type mailBackend struct{}

func (mailBackend) NewSession(*smtp.Conn) (smtp.Session, error) {
	return nil, errors.New("no mail here")
}

func serveSMTP(l *listener) {
	server := smtp.NewServer(mailBackend{})
	server.Domain = "localhost"
	go func() { _ = server.Serve(l) }()
	l.t.Cleanup(func() { _ = server.Close() })
}

func serveIMAP(l *listener) {
	server := imap.New(memory.New())
	go func() { _ = server.Serve(l) }()
	l.t.Cleanup(func() { _ = server.Close() })
}

func serveSSH(l *listener) {
	server := &ssh.Server{Handler: func(s ssh.Session) { _, _ = io.Copy(s, s) }}
	go func() { _ = server.Serve(l) }()
	l.t.Cleanup(func() { _ = server.Close() })
}

func dialSSH(t testing.TB, addr string) func(bool) error {
	client, err := cryptossh.Dial("tcp", addr, &cryptossh.ClientConfig{User: "user", HostKeyCallback: cryptossh.InsecureIgnoreHostKey()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	session, err := client.NewSession()
	require.NoError(t, err)
	in, err := session.StdinPipe()
	require.NoError(t, err)
	out, err := session.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, session.Shell())
	return func(bool) error { return exchange(in, out) }
}

// exchange sends four bytes to an echo, and waits for them.
func exchange(in io.Writer, out io.Reader) error {
	if _, err := io.WriteString(in, "beat"); err != nil {
		return err
	}
	_, err := io.ReadFull(out, make([]byte, 4))
	return err
}

func serveDNS(l *listener) {
	server := &dns.Server{Listener: l, IdleTimeout: func() time.Duration { return forever }, MaxTCPQueries: -1}
	server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) { _ = w.WriteMsg(new(dns.Msg).SetReply(r)) })
	go func() { _ = server.ActivateAndServe() }()
	l.t.Cleanup(func() { _ = server.Shutdown() })
}

func dialDNS(t testing.TB, addr string) func(bool) error {
	c, err := dns.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return func(bool) error {
		if err := c.WriteMsg(new(dns.Msg).SetQuestion("example.org.", dns.TypeA)); err != nil {
			return err
		}
		_, err := c.ReadMsg()
		return err
	}
}

func serveSOCKS(l *listener) {
	go func() { _ = socks5.NewServer().Serve(l) }()
}

// dialSOCKS goes through the server to an echo server of its own.
func dialSOCKS(t testing.TB, addr string) func(bool) error {
	echoes, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = echoes.Close() })
	go func() {
		if c, err := echoes.Accept(); err == nil {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}
	}()
	dialer, err := proxy.SOCKS5("tcp", addr, nil, nil)
	require.NoError(t, err)
	c, err := dialer.Dial("tcp", echoes.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return func(bool) error { return exchange(c, c) }
}

// eachConn accepts connections and serves each on a goroutine.
func eachConn(serve func(l *listener, c net.Conn)) func(*listener) {
	return func(l *listener) {
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				go serve(l, c)
			}
		}()
	}
}

func serveYamux(_ *listener, c net.Conn) {
	session, err := yamux.Server(c, nil)
	if err != nil {
		return
	}
	defer session.Close()
	stream, err := session.Accept()
	if err != nil {
		return
	}
	_, _ = io.Copy(stream, stream)
}

func dialYamux(t testing.TB, addr string) func(bool) error {
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	session, err := yamux.Client(c, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	stream, err := session.Open()
	require.NoError(t, err)
	return func(bool) error { return exchange(stream, stream) }
}

// A Patient is a service of net/rpc for one connection, which is held during a call.
type Patient struct{ conn idlenet.Conn }

// Ask answers at once, or after more than the timeout.
func (p Patient) Ask(wait bool, _ *struct{}) error {
	p.conn.Hold()
	defer p.conn.Release()
	if wait {
		time.Sleep(long)
	}
	return nil
}

func rpcFor(l *listener, c net.Conn) *rpc.Server {
	server := rpc.NewServer()
	if conn, err := l.Conn(c); err == nil {
		_ = server.Register(Patient{conn})
	}
	return server
}

func dialRPC(t testing.TB, addr string) func(bool) error {
	c, err := rpc.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return func(wait bool) error { return c.Call("Patient.Ask", wait, &struct{}{}) }
}
