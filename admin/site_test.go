package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/engine"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

// rightToken is the token of every handler that has one.
const rightToken = "0123456789abcdef-right"

// soon bounds the time that a test waits for an event. It is long, because the machine may be busy.
const soon = 20 * time.Second

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16")              // parallel tests wait most of the time
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // importing gnet starts two goroutines
}

// A site is a gnet server with a Reaper, and a Handler that serves it over HTTP. The gnet handler
// obeys the first byte of each message: h holds the connection, b blocks the event loop, and o
// sends more output than the peer takes. It ignores other bytes.
type site struct {
	gnet.BuiltinEventEngine
	booted  chan engine.Boot
	block   chan struct{} // ends the blocking when closed
	reaper  *idle.Reaper
	addr    string // of the gnet server
	handler *Handler
	url     string // of the Handler

	mu      sync.Mutex
	reasons map[string]error // guarded by mu; errors of OnClose by the address of the peer
}

func (s *site) OnBoot(eng gnet.Engine) gnet.Action {
	s.booted <- engine.NewBoot(eng)
	return gnet.None
}

func (s *site) OnTraffic(c gnet.Conn) gnet.Action {
	switch b, _ := c.Next(-1); b[0] {
	case 'h':
		conn, _ := s.reaper.Conn(c)
		conn.Hold()
	case 'b':
		<-s.block
	case 'o':
		_ = c.SetWriteBuffer(4 << 10)
		_, _ = c.Write(make([]byte, 16<<20))
	}
	return gnet.None
}

func (s *site) OnClose(c gnet.Conn, err error) gnet.Action {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reasons[c.RemoteAddr().String()] = err
	return gnet.None
}

// reason waits for OnClose of a connection and returns its error.
func (s *site) reason(t testing.TB, c net.Conn) (err error) {
	t.Helper()
	eventually(t, "OnClose", func() (closed bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		err, closed = s.reasons[c.LocalAddr().String()]
		return closed
	})
	return err
}

// newSite runs a server and its Handler until the test ends. It sets the Reaper of the Config.
func newSite(t testing.TB, loops int, of idle.Config, cfg Config) *site {
	t.Helper()
	s := &site{booted: make(chan engine.Boot, 1), block: make(chan struct{}), reasons: map[string]error{}}
	var err error
	s.reaper, err = idle.Middleware(s, of)
	require.NoError(t, err)
	s.addr = engine.Serve(t, s.reaper, s.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(loops)).String()
	cfg.Reaper = s.reaper
	s.handler, err = New(cfg)
	require.NoError(t, err)
	web := httptest.NewServer(s.handler)
	t.Cleanup(web.Close)
	s.url = web.URL
	return s
}

// hour is a Config with a timeout that no test reaches.
var hour = idle.Config{ReadTimeout: time.Hour, KeepClosed: 100}

// newHandler returns a Handler of a Reaper without connections.
func newHandler(t testing.TB, cfg Config) *Handler {
	t.Helper()
	var err error
	cfg.Reaper, err = idle.Middleware(&site{reasons: map[string]error{}}, hour)
	require.NoError(t, err)
	h, err := New(cfg)
	require.NoError(t, err)
	return h
}

// connect opens a connection, waits until the Reaper watches it, and sends a message, unless it
// is empty.
func (s *site) connect(t testing.TB, message string) net.Conn {
	t.Helper()
	previous := s.handler.inspector.open()
	c := sockets.Dial(t, "tcp", s.addr)
	eventually(t, "the connection is open", func() bool { return s.handler.inspector.open() > previous })
	if message != "" {
		_, err := c.Write([]byte(message))
		require.NoError(t, err)
	}
	return c
}

// id returns the ID of a connection.
func (s *site) id(t testing.TB, c net.Conn) string {
	t.Helper()
	all, err := s.handler.inspector.connections(t.Context(), "age", 1000)
	require.NoError(t, err)
	for _, i := range all {
		if i.Remote == c.LocalAddr().String() {
			return string(i.ID)
		}
	}
	t.Fatalf("%v is not open", c.LocalAddr())
	return ""
}

// An answered is the answer to a request.
type answered struct {
	status int
	header http.Header
	body   string
}

// do sends a request with the right token and with headers in pairs of name and value. An empty
// value removes the header.
func (s *site) do(t testing.TB, method, path, body string, headers ...string) answered {
	t.Helper()
	r := s.request(t, method, path, strings.NewReader(body), headers...)
	resp, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answered{resp.StatusCode, resp.Header, string(text)}
}

// request returns a request as do sends it.
func (s *site) request(t testing.TB, method, path string, body io.Reader, headers ...string) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	require.NoError(t, err)
	setHeaders(r, headers)
	return r
}

func setHeaders(r *http.Request, headers []string) {
	r.Header.Set("Authorization", "Bearer "+rightToken)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Del(headers[i])
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
}

// call sends a request for localhost to a handler without a network.
func call(h http.Handler, method, target, body string, headers ...string) answered {
	r := newRequest(context.Background(), method, target, body)
	setHeaders(r, headers)
	return callWith(h, r)
}

// newRequest returns a request for localhost with the right token.
func newRequest(ctx context.Context, method, target, body string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	r.Host = "localhost"
	setHeaders(r, nil)
	return r
}

func callWith(h http.Handler, r *http.Request) answered {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answered{w.Code, w.Result().Header, w.Body.String()}
}

// requireError checks that an answer is a short error in JSON, and returns its text.
func requireError(t testing.TB, status int, a answered, msg ...any) string {
	t.Helper()
	require.Equal(t, status, a.status, "%.1000s %v", a.body, msg)
	require.Equal(t, "application/json", a.header.Get("Content-Type"), msg...)
	var text struct{ Error string }
	d := json.NewDecoder(strings.NewReader(a.body))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&text), a.body)
	require.NotEmpty(t, text.Error, msg...)
	require.Less(t, len(a.body), 1000, "the error is short")
	return text.Error
}

// decode reads the JSON of an answer.
func decode[T any](t testing.TB, a answered) (v T) {
	t.Helper()
	require.Equal(t, 200, a.status, a.body)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	require.NoError(t, json.Unmarshal([]byte(a.body), &v), a.body)
	return v
}

// requireEnd waits until the peer sees the end of a connection.
func requireEnd(t testing.TB, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(soon)))
	_, err := io.Copy(io.Discard, c)
	if err != nil {
		require.ErrorContains(t, err, "reset", "the peer sees a reset or the end")
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !ok(); time.Sleep(time.Millisecond) {
		require.False(t, time.Now().After(end), "not within %v: %s", soon, what)
	}
}

// A viewer reads the events of a Handler.
type viewer struct {
	t     testing.TB
	lines *bufio.Scanner
	close func()
}

// watch subscribes to the events.
func (s *site) watch(t testing.TB) *viewer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	resp, err := http.DefaultTransport.RoundTrip(s.request(t, "GET", "/api/events", nil).WithContext(ctx))
	require.NoError(t, err)
	v := newViewer(t, resp.Body)
	v.close = func() {
		cancel()
		resp.Body.Close()
	}
	t.Cleanup(v.close)
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	return v
}

func newViewer(t testing.TB, r io.Reader) *viewer {
	v := &viewer{t: t, lines: bufio.NewScanner(r)}
	v.lines.Buffer(nil, 1<<20)
	return v
}

// read returns the next event, and false at the end of the stream. An event is two lines and an
// empty line.
func (v *viewer) read() (event, data string, ok bool) {
	var lines []string
	for v.lines.Scan() && v.lines.Text() != "" {
		lines = append(lines, v.lines.Text())
	}
	if len(lines) != 2 {
		return "", "", false
	}
	event, named := strings.CutPrefix(lines[0], "event: ")
	data, given := strings.CutPrefix(lines[1], "data: ")
	return event, data, named && given
}

// hello reads the first event.
func (v *viewer) hello() (h map[string]any) {
	v.t.Helper()
	event, data, ok := v.read()
	require.True(v.t, ok, "the stream has another event")
	require.Equal(v.t, "hello", event)
	require.NoError(v.t, json.Unmarshal([]byte(data), &h), data)
	return h
}

// A shownFrame is a frame as viewers receive it. A field is nil if the frame did not have it.
type shownFrame struct {
	Time         int64             `json:"now_ms"`
	Uptime       float64           `json:"uptime_seconds"`
	Status       string            `json:"status"`
	Connections  int               `json:"connections"`
	Limit        *int              `json:"limit"`
	LimitWhy     *string           `json:"limit_why"`
	Opened       uint64            `json:"opened"`
	Closed       uint64            `json:"closed"`
	Reads        uint64            `json:"reads"`
	Rejected     uint64            `json:"rejected"`
	Saved        *uint64           `json:"spared_unread"`
	Outages      *uint64           `json:"outages"`
	OutageTime   *float64          `json:"outage_seconds"`
	Postponed    *uint64           `json:"postponed"`
	Suspensions  *uint64           `json:"suspensions"`
	Suspended    *bool             `json:"suspended"`
	SuspendedFor []suspension      `json:"suspended_for"`
	Reaped       map[string]uint64 `json:"reaped"`
	Lateness     *struct {
		Count uint64   `json:"count"`
		Mean  *float64 `json:"mean_seconds"`
		Max   *float64 `json:"max_seconds"`
	} `json:"lateness"`
	LoopDelay *float64 `json:"loop_delay_seconds"`
	Lag       *float64 `json:"clock_delay_seconds"`
	Pressure  *struct {
		Connections *float64 `json:"connections"`
		Descriptors *float64 `json:"descriptors"`
		Heap        *float64 `json:"heap"`
		Memory      *float64 `json:"memory"`
	} `json:"pressure"`
	Blocked bool `json:"blocked"`
	Rings   []struct {
		Loop        int               `json:"loop"`
		Connections int               `json:"connections"`
		Turn        float64           `json:"turn_seconds"`
		Position    float64           `json:"now_seconds"`
		Sectors     []int             `json:"sectors"`
		Later       int               `json:"later"`
		Reaped      map[string]uint64 `json:"reaped"`
	} `json:"rings"`
	Limits map[string]any `json:"limits"`
	Idle   []shownConn    `json:"idle"`
	Recent []shownClosed  `json:"recent"`

	Silences map[string]any `json:"silences"`
}

type shownConn struct {
	ID        string   `json:"id"`
	Remote    string   `json:"remote"`
	State     string   `json:"state"`
	Age       float64  `json:"age_seconds"`
	ReadIdle  float64  `json:"read_idle_seconds"`
	WriteIdle *float64 `json:"write_idle_seconds"`
	Due       float64  `json:"due_seconds"`
	Received  uint64   `json:"received_bytes"`
	Sent      *uint64  `json:"sent_bytes"`
	Output    int      `json:"output_bytes"`
	Missed    *int     `json:"missed_heartbeats"`
}

type shownClosed struct {
	At     string   `json:"at"`
	Remote string   `json:"remote"`
	Reason string   `json:"reason"`
	Detail string   `json:"detail"`
	Age    *float64 `json:"age_seconds"`
	Lasted float64  `json:"lasted_seconds"`
	Limit  float64  `json:"limit_seconds"`
	Late   *float64 `json:"late_seconds"`
}

// frame reads the next frame.
func (v *viewer) frame() (f shownFrame) {
	v.t.Helper()
	event, data, ok := v.read()
	require.True(v.t, ok, "the stream has another event")
	require.Equal(v.t, "frame", event)
	d := json.NewDecoder(strings.NewReader(data))
	d.DisallowUnknownFields()
	require.NoError(v.t, d.Decode(&f), data)
	return f
}

// until reads frames until one fulfils a condition.
func (v *viewer) until(what string, ok func(shownFrame) bool) shownFrame {
	v.t.Helper()
	for end := time.Now().Add(soon); ; {
		if f := v.frame(); ok(f) {
			return f
		}
		require.False(v.t, time.Now().After(end), "not within %v: %s", soon, what)
	}
}

// newLogger returns a logger that writes all records to a buffer.
func newLogger(to *syncbuf.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// A pipeListener accepts connections without sockets, so that a server can run in a bubble of
// synctest.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.done) // the server closes it once
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// dial opens a connection and sends a request.
func (l *pipeListener) dial(t testing.TB, request string) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	l.conns <- theirs
	_, err := io.WriteString(ours, request)
	require.NoError(t, err)
	return ours
}

// servePipes runs an HTTP server in a bubble, and closes it when the bubble ends.
func servePipes(t testing.TB, srv *http.Server) (l *pipeListener) {
	l = &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	srv.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return l
}

const getEvents = "GET /api/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + rightToken + "\r\n\r\n"

// openPipe subscribes to the events over a pipe.
func openPipe(t testing.TB, l *pipeListener) *viewer {
	t.Helper()
	c := l.dial(t, getEvents)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	v := newViewer(t, resp.Body)
	v.close = func() { c.Close() }
	t.Cleanup(v.close)
	return v
}
