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

	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

// serveReal serves a Handler as NewServer does, and returns the address.
func serveReal(t *testing.T, h *Handler) (addr string) {
	t.Helper()
	l := sockets.Listen(t, "tcp", "127.0.0.1:0")
	srv, served := h.NewServer(), make(chan error, 1)
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
func raw(t *testing.T, addr, request string) net.Conn {
	t.Helper()
	c := sockets.Dial(t, "tcp", addr)
	require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
	_, err := io.WriteString(c, request)
	require.NoError(t, err)
	return c
}

func (s *site) viewers() int {
	s.handler.live.mu.Lock()
	defer s.handler.live.mu.Unlock()
	return len(s.handler.live.viewers)
}

// TestViewersThatDoNotReadMakeRoom fills all places with viewers that do not read. Their kernels
// take frames for minutes. Another viewer tries again, as the page does.
func TestViewersThatDoNotReadMakeRoom(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, minute, Config{Open: true})
	addr := serveReal(t, s.handler)
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
}

// TestViewersThatReadStay refuses a viewer many times. The others get a filler with a frame.
func TestViewersThatReadStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, Config{Open: true})
		srv := h.NewServer()
		l := servePipes(srv)
		defer srv.Close()
		for range maxViewers {
			c, v := openPipe(t, l)
			defer c.Close()
			v.hello()
			go func() {
				_, _ = io.Copy(io.Discard, c)
			}()
		}
		for range 20 {
			require.Equal(t, 503, call(h, "GET", "/api/events", "").status)
			time.Sleep(time.Second)
			synctest.Wait()
			h.live.mu.Lock()
			viewers, filled := len(h.live.viewers), h.live.filled
			h.live.mu.Unlock()
			require.Equal(t, maxViewers, viewers)
			require.Less(t, time.Since(filled), 2*fillerInterval)
		}
	})
}

// TestAViewerWithTheTokenAlwaysGetsIn fills all places with viewers without the token.
func TestAViewerWithTheTokenAlwaysGetsIn(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, minute, Config{Open: true, Token: rightToken})
	s.url = "http://" + serveReal(t, s.handler)
	var first net.Conn
	for i := range maxViewers - 1 {
		c := raw(t, strings.TrimPrefix(s.url, "http://"), "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if i == 0 {
			first = c
		}
	}
	eventually(t, "all places but one are taken", func() bool { return s.viewers() == maxViewers-1 })
	require.Equal(t, 503, s.do(t, "GET", "/api/events", "", "Authorization", "").status, "one place is for the token")
	for range maxViewers {
		v := s.watch(t)
		v.hello()
	}
	text, err := io.ReadAll(first)
	require.NoError(t, err)
	require.Contains(t, string(text), "event: end\ndata: {\"error\":\"a viewer with the token has taken the place")
	require.Equal(t, maxViewers, s.viewers())
	require.Equal(t, 503, s.do(t, "GET", "/api/events", "").status, "all have the token")
}

// TestAnAnswerDoesNotWaitForABody announces bodies and does not send them. The answer arrives at
// once, and the connection is closed.
func TestAnAnswerDoesNotWaitForABody(t *testing.T) {
	t.Parallel()
	h := newHandler(t, Config{Open: true, Token: rightToken})
	addr := serveReal(t, h)
	for request, want := range map[string]int{
		"GET /livez HTTP/1.1\r\nContent-Length: 9": 200, "GET /livez HTTP/1.1\r\nContent-Length: 999999": 200,
		"GET /livez HTTP/1.1\r\nTransfer-Encoding: chunked": 200, "GET /metrics HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 9": 200,
		"GET / HTTP/1.1\r\nContent-Length: 9": 200, "GET /nothing HTTP/1.1\r\nContent-Length: 9": 404,
		"POST /api/timeouts HTTP/1.1\r\nContent-Length: 9": 401, "OPTIONS * HTTP/1.1\r\nContent-Length: 9": 400,
		"GET /livez HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 9": 200,
	} {
		began := time.Now()
		c := raw(t, addr, request+"\r\nHost: localhost\r\n\r\n")
		require.NoError(t, c.SetReadDeadline(began.Add(soon)))
		in := bufio.NewReader(c)
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
	}
}

// TestABodyThatArrivesAfterTheAnswerIsRead would reset the connection otherwise, and some kernels
// would drop the answer.
func TestABodyThatArrivesAfterTheAnswerIsRead(t *testing.T) {
	t.Parallel()
	addr := serveReal(t, newHandler(t, Config{Open: true, Token: rightToken}))
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
}
