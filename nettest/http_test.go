package nettest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/reap"
)

// serveHTTP serves with TLS and HTTP/2, and returns the URL. The server is one of AttachHTTP.
func serveHTTP(l *listener, server *http.Server) (url string) {
	server.ConnContext = withConn
	l.AttachHTTP(server)
	return serveTLS(l, server)
}

// serveTLS is serveHTTP for a server that is not attached.
func serveTLS(l *listener, server *http.Server) (url string) {
	server.TLSConfig = serverTLS()
	server.ErrorLog = log.New(io.Discard, "", 0)
	if server.ConnContext == nil {
		server.ConnContext = withConn
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(l, "", "") }()
	l.t.Cleanup(func() {
		_ = server.Close()
		require.ErrorIs(l.t, <-served, http.ErrServerClosed)
	})
	return "https://" + l.address()
}

// withConn keeps a connection in a context. Handlers find their connection with connOf.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

type connKey struct{}

func connOf(r *http.Request) net.Conn { return r.Context().Value(connKey{}).(net.Conn) }

// answerIn answers after a time.
func answerIn(d time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(d):
			_, _ = io.WriteString(w, "ok")
		case <-r.Context().Done(): // the connection ended
		}
	})
}

// dialTLS opens a connection of a client that speaks HTTP/1.1.
func dialTLS(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", addr, clientTLS("http/1.1"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// dribble sends a text at one byte per 100 ms, until the connection is closed.
func dribble(c net.Conn, text string) {
	for b := range []byte(text) {
		if _, err := c.Write([]byte(text[b : b+1])); err != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// requireClosed requires that the server closes a connection.
func requireClosed(t testing.TB, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err := io.Copy(io.Discard, c)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

// inEachHTTPVersion runs a test with each option of curl that chooses a version of HTTP.
func inEachHTTPVersion(t *testing.T, test func(t *testing.T, version string)) {
	t.Parallel()
	for _, version := range []string{"--http1.1", "--http2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(t, version)
		})
	}
}

// curl runs curl, and returns for each URL the body and the number of new connections.
func curl(t testing.TB, args ...string) string {
	t.Helper()
	program(t, "curl")
	cmd := exec.CommandContext(t.Context(), "curl", append([]string{
		"--silent", "--show-error", "--fail", "--cacert", certificateFile(t), "--write-out", " %{num_connects}\n",
	}, args...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

func TestHTTPRequestLongerThanReadTimeout(t *testing.T) {
	inEachHTTPVersion(t, func(t *testing.T, version string) {
		l := listen(t, idlenet.Config{
			ReadTimeout: timeout, AllTimeout: timeout, HandshakeTimeout: timeout,
			Heartbeat: idlenet.Heartbeat{Interval: timeout / 4, Ping: func(net.Conn) {}}, // for WebSocket
		})
		url := serveHTTP(l, &http.Server{Handler: answerIn(long)})
		require.Equal(t, "ok 1\nok 0\n", curl(t, version, url, url))
		l.requireNone()
	})
}

// TestHTTPKeepAliveConnection has a connection with a request in each beat, and one that is silent.
func TestHTTPKeepAliveConnection(t *testing.T) {
	inEachHTTPVersion(t, func(t *testing.T, version string) {
		l := listen(t, idlenet.Config{ReadTimeout: timeout})
		url := serveHTTP(l, &http.Server{Handler: answerIn(0)})
		living := curl(t, version, "--rate", "120/m", url+"/[1-8]")
		require.Equal(t, "ok 1\n"+strings.Repeat("ok 0\n", 7), living)
		l.requireNone()
		silent := curl(t, version, "--rate", "15/m", url+"/[1-2]") // one in 4 s
		require.Equal(t, "ok 1\nok 1\n", silent)
		require.Equal(t, []reap.Reason{reap.ReadIdle}, slices.Collect(maps.Values(l.reasons())))
	})
}

// TestHTTPLoad has connections that are busy for longer than all timeouts.
func TestHTTPLoad(t *testing.T) {
	t.Parallel()
	program(t, "h2load")
	for name, args := range map[string][]string{"HTTP/1.1": {"--h1"}, "HTTP/2": {"-m", "10"}} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, idlenet.Config{
				ReadTimeout: timeout, AllTimeout: timeout, HandshakeTimeout: timeout, FirstByteTimeout: timeout, WriteStallTimeout: timeout,
			})
			url := serveHTTP(l, &http.Server{Handler: answerIn(0)})
			const clients = "50"
			args := append(args, "-c", clients, "-D", "4", url)
			out, err := exec.CommandContext(t.Context(), "h2load", args...).CombinedOutput()
			require.NoError(t, err, string(out))
			l.requireNone()
			require.EqualValues(t, 50, l.Stats().Opened, "h2load replaces a connection that is cut")
			found := regexp.MustCompile(`requests: .* (\d+) succeeded, 0 failed, 0 errored, 0 timeout`).FindSubmatch(out)
			require.NotNil(t, found, string(out))
			require.Greater(t, len(found[1]), 2, "at least 100 requests")
		})
	}
}

// TestHTTPSlowHeader sends a header of HTTP or of TLS byte by byte. ReadTimeout is long, because a
// busy machine may send no byte for a while.
func TestHTTPSlowHeader(t *testing.T) {
	t.Parallel()
	l := listen(t, idlenet.Config{ReadTimeout: forever, HandshakeTimeout: timeout})
	url := serveHTTP(l, &http.Server{Handler: answerIn(0)})
	plain, err := net.Dial("tcp", l.address())
	require.NoError(t, err)
	defer plain.Close()
	for c, text := range map[net.Conn]string{dialTLS(t, l.address()): "GET / HTTP/1.1\r\nHost: ", plain: "\x16\x03\x01\x10\x00"} {
		go dribble(c, text+strings.Repeat("x", 1000))
		l.awaitEnd(c.LocalAddr(), reap.NoHandshake)
		requireClosed(t, c)
	}
	require.Equal(t, "ok 1\n", curl(t, url))
	require.Len(t, l.reasons(), 2)
}

// countBody reads a body as a message, and answers with the length.
func countBody(l *listener, failed chan<- error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := connOf(r)
		conn, err := l.Conn(c)
		if err != nil {
			failed <- err
			return
		}
		conn.BeginMessage()
		defer conn.EndMessage()
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			failed <- errors.Join(err, l.Reason(c))
			return
		}
		_, _ = io.WriteString(w, "ok")
	})
}

const uploadHeader = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"

// TestHTTPLongUpload has uploads that are fast enough, and take longer than all limits.
func TestHTTPLongUpload(t *testing.T) {
	inEachHTTPVersion(t, func(t *testing.T, version string) {
		l := listen(t, idlenet.Config{
			ReadTimeout: timeout, HandshakeTimeout: timeout, MinRate: idlenet.MinRate{BytesPerSecond: 1000, Window: timeout},
		})
		failed := make(chan error, 1)
		url := serveHTTP(l, &http.Server{Handler: countBody(l, failed)})
		body := t.TempDir() + "/body"
		require.NoError(t, os.WriteFile(body, make([]byte, 400_000), 0o600))
		out := curl(t, version, "--limit-rate", "100k", "-H", "Expect:", "--data-binary", "@"+body, url)
		require.Equal(t, "ok 1\n", out)
		require.Empty(t, failed)
		l.requireNone()
	})
}

// TestHTTPSilentBody has a server that is not attached, so ReadTimeout applies to requests.
func TestHTTPSilentBody(t *testing.T) {
	t.Parallel()
	l := listen(t, idlenet.Config{ReadTimeout: timeout})
	failed := make(chan error, 1)
	serveTLS(l, &http.Server{Handler: countBody(l, failed)})
	c := dialTLS(t, l.address())
	_, err := io.WriteString(c, uploadHeader+"some bytes")
	require.NoError(t, err)
	l.awaitEnd(c.LocalAddr(), reap.ReadIdle)
	require.ErrorIs(t, <-failed, reap.ReadIdle)
	requireClosed(t, c)
}

// TestHTTPHandlerThatReadsLate has a server that is not attached. The peer is not idle while its
// bytes wait.
func TestHTTPHandlerThatReadsLate(t *testing.T) {
	t.Parallel()
	l := listen(t, idlenet.Config{ReadTimeout: timeout})
	failed := make(chan error, 1)
	url := serveTLS(l, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(long)
		countBody(l, failed).ServeHTTP(w, r)
	})})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: clientTLS("http/1.1")}}
	answer, err := client.Post(url, "", bytes.NewReader(make([]byte, 1<<20)))
	require.NoError(t, err)
	_ = answer.Body.Close()
	require.Empty(t, failed)
	l.requireNone()
}

// TestHTTPDrain drains a server that has idle connections and requests.
func TestHTTPDrain(t *testing.T) {
	t.Parallel()
	const each = 5
	l := listen(t, idlenet.Config{ReadTimeout: forever})
	started, finish := make(chan struct{}, 2*each), make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/long", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started <- struct{}{}
		select {
		case <-finish:
			_, _ = io.WriteString(w, "ok")
		case <-r.Context().Done(): // the connection ended
		}
	}))
	mux.Handle("/", answerIn(0))
	url := serveHTTP(l, &http.Server{Handler: mux})

	var clients []*http.Client
	for range each {
		for _, protocol := range []string{"http/1.1", "h2"} {
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: clientTLS(protocol), ForceAttemptHTTP2: protocol == "h2"}}
			require.Equal(t, "ok", get(client, url)) // its connection is idle from now on
			clients = append(clients, &http.Client{Transport: client.Transport.(*http.Transport).Clone()})
		}
	}
	eventually(t, "the connections are not active", func() bool {
		found, err := l.Inspect(t.Context(), reap.Query{Limit: 3 * each})
		return err == nil && !slices.ContainsFunc(found.Connections, func(c reap.ConnInfo) bool {
			const spared = time.Second // Drain gives connections more time that were active
			return min(c.ReadIdle, c.WriteIdle) < spared+100*time.Millisecond
		})
	})
	got := make(chan string, 2*each)
	for _, client := range clients {
		go func() { got <- get(client, url+"/long") }()
		<-started
	}
	require.NoError(t, l.Drain(timeout/2, 4*long))
	eventually(t, "the idle connections end", func() bool { return l.Connections() <= 2*each })
	require.Empty(t, got, "no request has ended")
	close(finish)
	for range 2 * each {
		require.Equal(t, "ok", <-got)
	}
	eventually(t, "all connections end", func() bool { return l.Connections() == 0 })
	for _, reason := range l.reasons() {
		require.Equal(t, reap.Drained, reason)
	}
	require.Len(t, l.reasons(), 4*each)
}

// get returns the body of an answer, or the text of an error.
func get(client *http.Client, url string) string {
	answer, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// TestHTTPHijackedConnection has connections that a handler has taken over. They are judged by
// their bytes, unless the handler holds them.
func TestHTTPHijackedConnection(t *testing.T) {
	t.Parallel()
	l := listen(t, idlenet.Config{ReadTimeout: timeout})
	failed := make(chan error, 3)
	serveHTTP(l, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			failed <- err
			return
		}
		defer c.Close()
		if r.URL.Path == "/held" {
			conn, err := l.Conn(c)
			if err != nil {
				failed <- err
				return
			}
			conn.Hold()
		}
		_, err = io.Copy(c, c)
		failed <- errors.Join(err, l.Reason(c))
	})})
	dial := func(path string) net.Conn {
		c := dialTLS(t, l.address())
		_, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		require.NoError(t, err)
		return c
	}
	silent, living, held := dial("/"), dial("/"), dial("/held")
	everyBeat(long, func() { echo(t, living) })
	l.awaitEnd(silent.LocalAddr(), reap.ReadIdle)
	require.ErrorIs(t, <-failed, reap.ReadIdle)
	requireClosed(t, silent)
	echo(t, living)
	echo(t, held)
	require.Len(t, l.reasons(), 1)
}

// echo sends a text to an echo server, and requires that it comes back.
func echo(t testing.TB, c net.Conn) {
	t.Helper()
	_, err := io.WriteString(c, "beat")
	require.NoError(t, err)
	b := make([]byte, 4)
	_, err = io.ReadFull(c, b)
	require.NoError(t, err)
	require.Equal(t, "beat", string(b))
}
