package idlenet

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/connstate"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/internal/watch"
	"github.com/idlewheel/idlewheel/reap"
)

// AttachHTTP makes a server of package net/http work with the Reaper. It must be called after the
// fields of the server are set, and before it serves:
//
//	server := &http.Server{Handler: handler}
//	ln.AttachHTTP(server)
//	return server.Serve(ln)
//
// It sets ConnState, ConnContext and Handler, and goes on to call what was there. Besides what
// [Reaper.ConnState] does, it ends connections by their protocol, so that requests are answered:
//
//   - When MaxAge has passed, or its moment of a Drain has come, a connection answers its next
//     request with "Connection: close", which is GOAWAY in HTTP/2. A WebSocket that begins stays.
//   - When a connection ends by MaxAge, Drain or Kick, the request in hand goes on, and the
//     connection is closed after a second without a byte.
//   - An HTTP/2 connection that ends, for ReadIdle and AllIdle too, gets a GOAWAY first, so that
//     its client begins no request while the connection closes.
//
// CloseGrace bounds all of this: set it longer than the longest request. A connection with a reason
// in Config.Reset is reset at once all the same.
//
// All listeners of a server must have the same Reaper.
func (r *Reaper) AttachHTTP(server *http.Server) {
	before := struct {
		state   func(net.Conn, http.ConnState)
		context func(context.Context, net.Conn) context.Context
		handler http.Handler
	}{server.ConnState, server.ConnContext, server.Handler}
	if before.handler == nil {
		before.handler = http.DefaultServeMux
	}
	server.ConnState = func(c net.Conn, state http.ConnState) {
		r.connState(c, state, true)
		if before.state != nil {
			before.state(c, state)
		}
	}
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if before.context != nil {
			ctx = before.context(ctx, c)
		}
		return context.WithValue(ctx, connKey{}, c)
	}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if r.leaves(request) && !upgrades(request) {
			last := lastWriter{w}
			defer last.end()
			before.handler.ServeHTTP(last.like(w), request)
			r.hasAnswered(request) // not after a panic: there may be no header
			return
		}
		before.handler.ServeHTTP(w, request)
	})
}

// upgrades reports whether a request may change the protocol. Package net/http answers one that
// offers h2c, as curl --http2 does, as if it did not.
func upgrades(request *http.Request) bool {
	to := request.Header.Get("Upgrade")
	return to != "" && !strings.EqualFold(to, "h2c")
}

// A lastWriter writes the last answer of a connection. It sets the header when the answer begins: a
// handler may clear the headers that it finds, as httputil.ReverseProxy does after a 103 Early
// Hints, and HTTP/2 forbids this one in a 103. The methods are those of both writers of net/http,
// because handlers ask for them by type.
type lastWriter struct{ http.ResponseWriter }

// The writer of HTTP/1 and that of HTTP/2 have a few more: handlers tell the protocol by them.
type (
	lastWriter1 struct{ lastWriter }
	lastWriter2 struct{ lastWriter }
)

// like returns the writer with the methods of another one.
func (w lastWriter) like(other http.ResponseWriter) http.ResponseWriter {
	if _, is := other.(http.Pusher); is {
		return lastWriter2{w}
	}
	return lastWriter1{w}
}

func (w lastWriter) end() { w.Header().Set("Connection", "close") }

func (w lastWriter) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.end()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w lastWriter) Write(b []byte) (int, error) {
	w.end()
	return w.ResponseWriter.Write(b)
}

func (w lastWriter) WriteString(text string) (int, error) {
	w.end()
	return io.WriteString(w.ResponseWriter, text)
}

func (w lastWriter1) ReadFrom(from io.Reader) (int64, error) {
	w.end()
	return io.Copy(w.ResponseWriter, from)
}

func (w lastWriter) Flush() { _ = w.FlushError() }

// FlushError is called by http.ResponseController.
func (w lastWriter) FlushError() error {
	w.end()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w lastWriter1) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func (w lastWriter2) Push(target string, options *http.PushOptions) error {
	return w.ResponseWriter.(http.Pusher).Push(target, options)
}

func (w lastWriter) CloseNotify() <-chan bool { return w.ResponseWriter.(closeNotifier).CloseNotify() }

// A closeNotifier is an http.CloseNotifier, which is deprecated.
type closeNotifier interface{ CloseNotify() <-chan bool }

func (w lastWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ConnState tells the Reaper what a net/http server does with a connection:
//
//	server := &http.Server{Handler: handler, ConnState: ln.ConnState}
//
// StateActive means that a request has been read. It holds its connection until another state
// follows, and the first one ends the handshake. With HTTP/2 the preface of the client ends it, and
// a connection is held while it has streams. A connection that was hijacked, for WebSocket, is held
// no more and judged by its bytes. A closed connection is forgotten at once. There is no heartbeat
// before a connection is hijacked, because HTTP has no room for a ping. A warning tells of
// connections that the Reaper does not watch, such as those that a listener around it hides.
func (r *Reaper) ConnState(c net.Conn, state http.ConnState) { r.connState(c, state, false) }

// connState is ConnState, and says whether the server is one of AttachHTTP.
func (r *Reaper) connState(c net.Conn, state http.ConnState, isAttached bool) {
	if !r.serve(c, state, isAttached) && state < http.StateHijacked {
		err := form.NotWatched()
		if own, ok := r.root(c); !ok {
			err = errNoSocket(c)
		} else if errors.Is(control(own, func(uintptr) {}), net.ErrClosed) {
			return // the Reaper has found that before the server told of it
		}
		r.watch.Warn(&r.warnings.hidden, "requests of a connection do not hold it", "error", err)
	}
}

// serve takes note of what a server does with a connection, and whether it is attached. It reports
// whether the Reaper watches the connection. It waits while a GOAWAY is written, and until the
// client has the last answer.
func (r *Reaper) serve(c net.Conn, state http.ConnState, isAttached bool) (watched bool) {
	var wait, after func() // when the mutex is free
	r.with(c, func(s *shard, id uint32, n *conn) {
		watched = true
		own := n.Front.own()
		isActive, wasActive := state == http.StateActive, n.Own&requested != 0
		n.AllowPings(state >= http.StateHijacked)
		if n.Own &^= requested; isActive {
			n.Own |= requested
		}
		switch {
		case isActive && !wasActive:
			s.ready(id, n)
			n.Hold()
			if s.takeBack(id, n) {
				after = func() { s.untell(own) }
			}
		case !isActive && wasActive:
			s.Release(id, n)
		}
		switch {
		case state == http.StateHijacked:
			n.Own &^= attached
			if n.Own&leaving != 0 && s.Ends.Of(id).Told != 0 {
				after = func() { tell(own) }
			}
			s.stopLeaving(n)
		case state == http.StateClosed:
			s.forget(id, n)
		case isAttached:
			wait = s.attach(id, n, c)
		}
	})
	if wait != nil {
		wait()
	}
	if after != nil {
		after()
	}
	return watched
}

type connKey struct{}

// ConnOf returns the connection of a request, for the methods of the Reaper, from the context of
// the request. It returns nil if AttachHTTP was not called for its server.
func ConnOf(ctx context.Context) net.Conn {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	return c
}

// quiet is how long nothing may have been sent in either direction before a connection is closed
// that ends by its protocol. RFC 9113, section 6.8, asks for a round trip.
const quiet = time.Second

// An http2Conn is a connection with HTTP/2 as its server writes to it, above TLS.
type http2Conn struct {
	net.Conn
	warned chan struct{} // is closed when the GOAWAY is written; nil before it is sent
	closes bool          // net/http has sent one, and closes the connection by itself
}

// goAway is the frame that asks the client to begin no more requests. Those that have begun by the
// time it arrives are served: the last stream is the largest of all.
const goAway = "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x7f\xff\xff\xff\x00\x00\x00\x00"

// attach takes note that AttachHTTP has changed the server of a connection, and of its protocol. It
// returns what the server has to wait for, nil if there is nothing.
func (s *shard) attach(id uint32, n *conn, c net.Conn) (wait func()) {
	n.Own |= attached
	if n.Own&requested != 0 && n.Own&negotiated == 0 {
		n.Own |= negotiated
		if above, is := c.(*tls.Conn); is && above.ConnectionState().NegotiatedProtocol == "h2" {
			s.noteHTTP2(id, c)
		}
	}
	h, own := s.http2[id], n.Front.own()
	switch {
	case h != nil && h.closes && n.Own&requested == 0:
		grace := s.config().CloseGrace
		return func() { s.reaper.awaitOutput(own, grace) }
	case h != nil && h.warned != nil:
		return func() { <-h.warned }
	}
	return nil
}

// awaitOutput waits until the peer has acknowledged all output, or the connection has ended, for a
// time at most. A second after its last answer net/http closes a connection with HTTP/2, and what a
// slow client sends from then on, as it does for each part that it reads, destroys the rest of the
// answer.
func (r *Reaper) awaitOutput(own socket, atMost time.Duration) {
	var ev verdict.Evidence
	for end := time.Now().Add(atMost); time.Now().Before(end); time.Sleep(quiet / 20) {
		if !r.ask(own, configtable.TenYears, &ev) || ev.Found == verdict.Ended || ev.Queued <= 0 {
			return
		}
	}
}

func (s *shard) noteHTTP2(id uint32, c net.Conn) {
	if s.http2[id] == nil {
		s.http2[id] = &http2Conn{Conn: c}
	}
}

// leaves reports whether the answer to a request is to end its connection.
func (r *Reaper) leaves(request *http.Request) (leaves bool) {
	c := ConnOf(request.Context())
	r.with(c, func(s *shard, id uint32, n *conn) {
		if request.ProtoMajor == 2 {
			s.noteHTTP2(id, c)
		}
		turn := s.Watcher.Settings().Common.DrainTurn(s.Random(id, n))
		leaves = s.Ends.Of(id) != nil || !n.Is(connstate.Exempt) && (n.Is(connstate.Leaving) || s.Watcher.Clock.Elapsed() >= turn)
	})
	return leaves
}

// hasAnswered takes note of the last answer of a connection. With HTTP/2 net/http closes it when it
// has written all of it, which nobody else can know: it tells that the request is over before that.
func (r *Reaper) hasAnswered(request *http.Request) {
	r.with(ConnOf(request.Context()), func(s *shard, id uint32, _ *conn) {
		if c := s.http2[id]; c != nil {
			c.closes = true
		}
	})
}

// endsByProtocol reports whether a connection that ends for a reason is closed when its protocol
// allows it. A peer that breaks another limit gets no more time.
func (s *shard) endsByProtocol(id uint32, n *conn, r reap.Reason) bool {
	switch r {
	case reap.MaxAge, reap.Drained, reap.Kicked:
		return n.Own&attached != 0
	case reap.ReadIdle, reap.AllIdle:
		return s.http2[id] != nil
	}
	return false
}

// staysForRequest reports whether a connection that ends for a reason stays while it serves a
// request that came before its server was told: it ends because nothing came.
func staysForRequest(r reap.Reason) bool { return verdict.IsIdle(r) || r == reap.Shed }

// takeBack reports whether a server was told to close a connection after it had read a request. The
// request is answered then, and untell has to be called.
func (s *shard) takeBack(id uint32, n *conn) bool {
	e := s.Ends.Of(id)
	if e == nil || e.Told == 0 || n.Own&leaving != 0 || !staysForRequest(e.Reason.Reason) && !s.endsByProtocol(id, n, e.Reason.Reason) {
		return false
	}
	s.startLeaving(n)
	return true
}

// untell undoes tell. The deadline of the server for the rest of the request is lost; CloseGrace is
// there.
func (s *shard) untell(own socket) {
	s.telling.Lock() // it may be told just now
	defer s.telling.Unlock()
	_ = own.SetReadDeadline(time.Time{})
}

// startLeaving makes a connection that has ended stay until its protocol allows its end. It counts
// as one that stays meanwhile, so that MaxConnections bounds such connections, too.
func (s *shard) startLeaving(n *conn) {
	n.Own |= leaving
	s.Watcher.Decided.Add(-1)
}

func (s *shard) stopLeaving(n *conn) {
	if n.Own&leaving != 0 {
		n.Own &^= leaving
		s.Watcher.Decided.Add(1)
	}
}

// leave goes on to end a connection by its protocol. It returns the time of the next look at it, if
// it is before the end of its CloseGrace.
func (s *shard) leave(id uint32, n *conn, now mono.Time) (next mono.Time) {
	if n.Own&requested != 0 {
		return now.Add(quiet)
	}
	silent := s.quietFor(id, n)
	if silent < quiet {
		return now.Add(quiet - silent)
	}
	switch c := s.http2[id]; {
	case c != nil && c.closes:
	case c != nil && c.warned == nil:
		c.warned = make(chan struct{}) // from now on serve waits for the GOAWAY
		s.calls = append(s.calls, func() { s.reaper.spawn(c.sendGoAway) })
	case c == nil || c.isWarned():
		e, own := s.Ends.Of(id), n.Front.own()
		s.calls = append(s.calls, func() { s.tellQuiet(id, own, e) })
	}
	return now.Add(quiet)
}

// quietFor returns how long nothing was sent. After a stop of the process, or of this goroutine, a
// part of a request may wait.
func (s *shard) quietFor(id uint32, n *conn) time.Duration {
	s.exact = true
	defer func() { s.exact = false }()
	return s.Quiet(id, n)
}

// tellQuiet tells the server of a connection that leaves, unless a request has come.
func (s *shard) tellQuiet(id uint32, own socket, e *watch.End) {
	s.telling.Lock()
	defer s.telling.Unlock()
	isNow := false
	s.locked(func() {
		if n := s.At(id); s.Ends.Of(id) == e && n.Own&leaving != 0 && n.Own&requested == 0 && s.quietFor(id, n) >= quiet {
			s.stopLeaving(n)
			isNow = true
		}
	})
	if isNow {
		tell(own)
	}
}

// isWarned reports whether the GOAWAY is written. On a busy machine that takes a while.
func (c *http2Conn) isWarned() bool {
	select {
	case <-c.warned:
		return true
	default:
		return false
	}
}

// sendGoAway writes the frame between those of the server. The server has written all frames of the
// last request, and none of the next one.
func (c *http2Conn) sendGoAway() {
	defer close(c.warned)
	_, _ = io.WriteString(c.Conn, goAway)
}
