package admin

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// MaxConnections is the limit of connections of an http.Server of NewServer. One more is open while
// another one is being closed.
const MaxConnections = 64

// bodyTimeout is the time that a client has to send the rest of a body after the answer.
const bodyTimeout = 500 * time.Millisecond

// NewServer returns an http.Server for the Handler that stays within reach of the operator. It
// bounds the connections, and what a slow client, or one that sends too much, can take. The caller
// may set Addr, and may wrap the Handler. Shutdown ends the streams of open pages.
func (h *Handler) NewServer() *http.Server {
	down, end := context.WithCancel(context.Background())
	server := &http.Server{
		Handler:           h,
		BaseContext:       func(net.Listener) context.Context { return context.WithValue(context.Background(), downKey{}, down) },
		ConnContext:       h.places.connContext,
		ConnState:         h.places.connState,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    8 << 10,
		// The general handler of OPTIONS * would wait for a body.
		DisableGeneralOptionsHandler: true,
		// Errors are mostly about clients that have gone.
		ErrorLog: slog.NewLogLogger(h.cfg.Logger.Handler(), slog.LevelDebug),
	}
	server.RegisterOnShutdown(end)
	return server
}

// downKey is the key of a context that is done when the server shuts down. That of a request is
// not.
type downKey struct{}

// isDown returns a channel that is closed when the server of a request shuts down, nil if the
// server is not of NewServer.
func isDown(r *http.Request) <-chan struct{} {
	if down, ok := r.Context().Value(downKey{}).(context.Context); ok {
		return down.Done()
	}
	return nil
}

// answerBeforeBody makes the server send the answer even if the body of the request is missing, and
// close the connection after it. The caller calls over when the request is handled.
func answerBeforeBody(w http.ResponseWriter, r *http.Request) (over func()) {
	if r.ContentLength == 0 {
		return func() {}
	}
	w.Header().Set("Connection", "close")
	return func() { // not every ResponseWriter has deadlines
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	}
}
