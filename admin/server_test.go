package admin

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

// serveReal runs a server that NewServer has returned, and returns its address.
func serveReal(t testing.TB, srv *http.Server) (addr string) {
	t.Helper()
	l, served := sockets.Listen(t, "tcp", "127.0.0.1:0"), make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		require.NoError(t, srv.Shutdown(ctx), "a connection stays open")
		<-served
	})
	return l.Addr().String()
}

// raw sends the head of a request to a Handler and returns the connection.
func raw(t testing.TB, addr, request string) net.Conn {
	t.Helper()
	c := sockets.Dial(t, "tcp", addr)
	require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
	_, err := io.WriteString(c, request)
	require.NoError(t, err)
	return c
}

func TestASlowClientIsClosed(t *testing.T) {
	t.Parallel()
	const d = 200 * time.Millisecond
	srv := newHandler(t, Config{Open: true, Token: rightToken}).NewServer()
	require.Positive(t, srv.ReadHeaderTimeout)
	require.Positive(t, srv.IdleTimeout)
	srv.ReadHeaderTimeout, srv.ReadTimeout, srv.WriteTimeout, srv.IdleTimeout = d, d, d, d
	addr := serveReal(t, srv)
	for name, send := range map[string]string{
		"nothing":       "",
		"half a header": "GET / HTTP/1.1\r\nHost: local",
		"half a body": "POST /api/timeouts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + rightToken +
			"\r\nContent-Length: 100\r\n\r\n{",
		"a body for a GET": "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx",
		"nothing more":     "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		c := sockets.Dial(t, "tcp", addr)
		_, err := io.WriteString(c, send)
		require.NoError(t, err)
		_, err = io.ReadAll(c)
		require.NoError(t, err, "a client that sends %s is closed", name)
	}
}

func TestAShutdownEndsOpenPages(t *testing.T) {
	srv := newHandler(t, Config{Open: true}).NewServer()
	page := raw(t, serveReal(t, srv), "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	_, err := page.Read(make([]byte, 1))
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, page) }()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	require.NoError(t, srv.Shutdown(ctx))
}

func TestARequestThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	s := site{url: "http://" + serveReal(t, newHandler(t, Config{Open: true, Token: rightToken}).NewServer())}
	long := s.do(t, "GET", "/api/connections?sort="+strings.Repeat("x", 64<<10), "")
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, long.status)
}

// watched returns the number of viewers, and whether the goroutine of their frames runs.
func (h *Handler) watched() (viewers int, running bool) {
	h.live.mu.Lock()
	defer h.live.mu.Unlock()
	return len(h.live.viewers), h.live.stop != nil
}

func (s *site) viewers() (n int) {
	n, _ = s.handler.watched()
	return n
}

// TestViewersThatDoNotReadMakeRoom fills all places with viewers that do not read. Their kernels
// take frames for minutes. Another viewer tries again, as the page does.
func TestViewersThatDoNotReadMakeRoom(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		s := newSite(t, 1, hour, Config{Open: true})
		addr := serveReal(t, s.handler.NewServer())
		for range maxViewers {
			raw(t, addr, "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
		eventually(t, "all places are taken", func() bool { return s.viewers() == maxViewers })
		s.url = "http://" + addr
		began := time.Now()
		a := s.do(t, "GET", "/api/events", "")
		require.Contains(t, requireError(t, 503, a), "the page has 32 viewers already: close one of them")
		eventually(t, "those that do not read are closed", func() bool { return s.viewers() == 0 })
		t.Logf("after %v", time.Since(began))
		require.Less(t, time.Since(began), 2*viewerTimeout)
		v := s.watch(t)
		v.hello()
		v.frame()
	})
}

// TestViewersThatReadStay refuses a viewer many times. The others get a filler with a frame.
func TestViewersThatReadStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, Config{Open: true})
		l := servePipes(t, h.NewServer())
		for range maxViewers {
			v := openPipe(t, l)
			v.hello()
			go func() {
				for v.lines.Scan() {
				}
			}()
		}
		for range 20 {
			require.Equal(t, 503, call(h, "GET", "/api/events", "").status)
			time.Sleep(time.Second)
			synctest.Wait()
			viewers, _ := h.watched()
			require.Equal(t, maxViewers, viewers)
			require.Less(t, time.Since(h.live.filled), 2*fillerInterval)
		}
	})
}

// TestAViewerWithTheTokenAlwaysGetsIn fills all places with viewers without the token.
func TestAViewerWithTheTokenAlwaysGetsIn(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, hour, Config{Open: true, Token: rightToken})
	s.url = "http://" + serveReal(t, s.handler.NewServer())
	var first net.Conn
	for i := range maxViewers - 1 {
		c := raw(t, strings.TrimPrefix(s.url, "http://"), "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if i == 0 {
			first = c
		}
	}
	eventually(t, "all places but one are taken", func() bool { return s.viewers() == maxViewers-1 })
	require.Equal(t, 503, s.do(t, "GET", "/api/events", "", "Authorization", "").status, "one place is for the token")
	var last *viewer
	for range maxViewers {
		last = s.watch(t)
		last.hello()
	}
	text, err := io.ReadAll(first)
	require.NoError(t, err)
	require.Contains(t, string(text), "event: end\ndata: {\"error\":\"a viewer with the token has taken the place")
	require.Equal(t, maxViewers, s.viewers())
	require.Equal(t, 503, s.do(t, "GET", "/api/events", "").status, "all have the token")
	last.close()
	eventually(t, "there is room again", func() bool { return s.viewers() == maxViewers-1 })
	s.watch(t).hello()
}

// TestAnAnswerDoesNotWaitForABody announces bodies and does not send them. The answer arrives at
// once, and the connection is closed.
func TestAnAnswerDoesNotWaitForABody(t *testing.T) {
	for request, want := range map[string]int{
		"GET /livez HTTP/1.1\r\nContent-Length: 9": 200, "GET /livez HTTP/1.1\r\nContent-Length: 999999": 200,
		"GET /livez HTTP/1.1\r\nTransfer-Encoding: chunked": 200, "GET /metrics HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 9": 200,
		"GET / HTTP/1.1\r\nContent-Length: 9": 200, "GET /nothing HTTP/1.1\r\nContent-Length: 9": 404,
		"POST /api/timeouts HTTP/1.1\r\nContent-Length: 9": 401, "OPTIONS * HTTP/1.1\r\nContent-Length: 9": 400,
		"GET /livez HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 9": 200,
	} {
		synctest.Test(t, func(t *testing.T) {
			l := servePipes(t, newHandler(t, Config{Open: true, Token: rightToken}).NewServer())
			began := time.Now()
			in := bufio.NewReader(l.dial(t, request+"\r\nHost: localhost\r\n\r\n"))
			resp, err := http.ReadResponse(in, nil)
			require.NoError(t, err, request)
			require.Less(t, time.Since(began), bodyTimeout, request)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err, request)
			require.Equal(t, want, resp.StatusCode, "%s: %s", request, text)
			require.True(t, resp.Close, request)
			_, err = in.ReadByte()
			require.ErrorIs(t, err, io.EOF, request)
			require.Less(t, time.Since(began), 4*bodyTimeout, request)
		})
	}
}

// TestABodyThatArrivesAfterTheAnswerIsRead would reset the connection otherwise, and some kernels
// would drop the answer.
func TestABodyThatArrivesAfterTheAnswerIsRead(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		addr := serveReal(t, newHandler(t, Config{Open: true, Token: rightToken}).NewServer())
		c := raw(t, addr, "POST /api/timeouts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
		in := bufio.NewReader(c)
		resp, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Contains(t, string(text), "the token is missing or wrong")
		_, err = c.Write(make([]byte, 100_000))
		require.NoError(t, err)
		_, err = in.ReadByte()
		require.ErrorIs(t, err, io.EOF, "there is no reset")
	})
}
