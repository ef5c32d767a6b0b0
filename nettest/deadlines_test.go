package nettest

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/reap"
)

// TestDeadlinesOfHTTPServer shows which limit ends a connection if the http.Server has limits of
// its own: the limit that passes first. The limits of the server give no reason.
func TestDeadlinesOfHTTPServer(t *testing.T) {
	t.Parallel()
	const request = "GET / HTTP/1.1\r\nHost: localhost\r\n"
	silence := func(c net.Conn) { _, _ = io.WriteString(c, request+"\r\n") }
	slowHeader := func(c net.Conn) { dribble(c, request+strings.Repeat("x", 1000)) }
	slowSecondHeader := func(c net.Conn) {
		silence(c)
		slowHeader(c)
	}
	slowBody := func(c net.Conn) {
		_, _ = io.WriteString(c, uploadHeader)
		dribble(c, strings.Repeat("x", 1000))
	}
	rate := idlenet.MinRate{BytesPerSecond: 1000, Window: timeout}
	for name, tc := range map[string]struct {
		server *http.Server
		cfg    idlenet.Config
		peer   func(net.Conn)
		want   idlenet.Reason // 0 if the server closes the connection
	}{
		"IdleTimeout first": {
			&http.Server{IdleTimeout: timeout}, idlenet.Config{ReadTimeout: forever}, silence, 0},
		"ReadTimeout of idlenet before IdleTimeout": {
			&http.Server{IdleTimeout: forever}, idlenet.Config{ReadTimeout: timeout}, silence, reap.ReadIdle},
		"ReadHeaderTimeout first": {
			&http.Server{ReadHeaderTimeout: timeout}, idlenet.Config{HandshakeTimeout: forever}, slowHeader, 0},
		"HandshakeTimeout before ReadHeaderTimeout": {
			&http.Server{ReadHeaderTimeout: forever}, idlenet.Config{HandshakeTimeout: timeout}, slowHeader, reap.NoHandshake},
		"HandshakeTimeout ends with the first request": {
			&http.Server{ReadHeaderTimeout: long, IdleTimeout: forever}, idlenet.Config{HandshakeTimeout: timeout}, slowSecondHeader, 0},
		"ReadTimeout of the server before MinRate": {
			&http.Server{ReadTimeout: timeout}, idlenet.Config{MinRate: idlenet.MinRate{BytesPerSecond: 1000, Window: forever}}, slowBody, 0},
		"MinRate before ReadTimeout of the server": {
			&http.Server{ReadTimeout: forever}, idlenet.Config{MinRate: rate}, slowBody, reap.BelowMinRate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, failed := listen(t, tc.cfg), make(chan error, 1)
			tc.server.Handler = countBody(l, failed)
			serveHTTP(l, tc.server)
			c := dialTLS(t, l.address())
			go tc.peer(c)
			requireClosed(t, c)
			if tc.want == 0 {
				l.requireNone()
				return
			}
			l.awaitEnd(c.LocalAddr(), tc.want)
			if tc.want == reap.BelowMinRate { // in the handler
				err := <-failed
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				require.ErrorIs(t, err, reap.BelowMinRate)
			}
		})
	}
}

// TestServerThatReplacesTheDeadline has a server that sets a deadline before each Read. So the
// deadline in the past may be lost, and idlenet closes the connection after CloseGrace.
func TestServerThatReplacesTheDeadline(t *testing.T) {
	t.Parallel()
	l := listen(t, idlenet.Config{ReadTimeout: timeout, CloseGrace: timeout})
	failed := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			failed <- err
			return
		}
		for b := make([]byte, 10); ; {
			_, err := c.Read(b)
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
				err = c.SetReadDeadline(time.Now().Add(forever))
			}
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	c, err := net.Dial("tcp", l.address())
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "hello")
	require.NoError(t, err)
	l.awaitEnd(c.LocalAddr(), reap.ReadIdle)
	ended := time.Now()
	requireClosed(t, c)
	require.Greater(t, time.Since(ended), timeout/2)
	require.ErrorIs(t, <-failed, net.ErrClosed)
}

// TestHTTP2SlowHeader dribbles a header of HTTP/2. HandshakeTimeout has ended with the preface, and
// bytes come in, so only http.Server.IdleTimeout ends it: no stream is open yet.
func TestHTTP2SlowHeader(t *testing.T) {
	t.Parallel()
	l := listen(t, idlenet.Config{ReadTimeout: timeout, HandshakeTimeout: timeout})
	serveHTTP(l, &http.Server{Handler: answerIn(0), IdleTimeout: long})
	c, err := tls.Dial("tcp", l.address(), clientTLS("h2"))
	require.NoError(t, err)
	defer c.Close()
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // an empty frame
	const headers = "\x00\x03\xe8\x01\x04\x00\x00\x00\x01"  // the head of a frame of 1000 bytes
	_, err = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings)
	require.NoError(t, err)
	began := time.Now()
	go dribble(c, headers+strings.Repeat("\x00", 1000))
	requireClosed(t, c)
	require.Greater(t, time.Since(began), long*3/4)
	l.requireNone()
}
