// Command coderwebsocket is a WebSocket echo server on net/http with github.com/coder/websocket.
//
//	go -C examples run ./coderwebsocket -heartbeat 5s
//	python3 -m websockets ws://127.0.0.1:8082   # in another terminal; kill -STOP it
//
// A silent client gets a ping after -heartbeat. If it does not answer two pings, its connection is
// closed. A connection without a request is closed after -handshake-timeout. With -max-age a client
// gets a close frame at that age.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/idlewheel/idlewheel/idlenet"
)

// A hub finds the WebSocket of a connection. Safe for concurrent use.
type hub struct {
	ln      *idlenet.Listener
	sockets sync.Map // *websocket.Conn by net.Conn
}

// ping sends a ping, and waits for the pong for a second. The Listener sees the pong by itself.
func (h *hub) ping(c net.Conn) {
	if socket, ok := h.sockets.Load(c); ok {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = socket.(*websocket.Conn).Ping(ctx)
	}
}

// goodbye sends a close frame at MaxAge, and waits for the one of the client.
func (h *hub) goodbye(c net.Conn, reason *idlenet.ReapError) {
	if socket, ok := h.sockets.Load(c); ok {
		_ = socket.(*websocket.Conn).Close(websocket.StatusGoingAway, reason.Reason.Error())
	}
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	socket, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	defer func() { _ = socket.CloseNow() }()
	c := idlenet.ConnOf(r.Context())
	h.sockets.Store(c, socket)
	defer h.sockets.Delete(c)
	for err == nil {
		var kind websocket.MessageType
		var message []byte
		if kind, message, err = socket.Read(r.Context()); err == nil {
			err = socket.Write(r.Context(), kind, message)
		}
	}
	if h.ln.Reason(c) == nil { // otherwise OnReap has logged the reason
		log.Printf("%v closed: %v", c.RemoteAddr(), err)
	}
}

func main() {
	h := &hub{}
	var beat idlenet.Heartbeat
	addr := flag.String("addr", "127.0.0.1:8082", "`host:port` to listen on")
	handshake := flag.Duration("handshake-timeout", 10*time.Second, "time for the first request")
	flag.DurationVar(&beat.Interval, "heartbeat", 30*time.Second, "silence after which a client gets a ping")
	flag.DurationVar(&beat.Retry, "heartbeat-retry", 0, "time for the pong; 0 is -heartbeat")
	maxAge := flag.Duration("max-age", time.Hour, "age at which a client has to connect again; 0 is none")
	flag.Parse()
	beat.Ping = h.ping
	inner, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	cfg := idlenet.Config{
		HandshakeTimeout: *handshake, Heartbeat: beat, MaxAge: *maxAge, Goodbye: h.goodbye,
		OnReap: func(c net.Conn, reason *idlenet.ReapError) { log.Printf("%v closed: %v", c.RemoteAddr(), reason) },
	}
	if cfg.MaxAge != 0 {
		cfg.MaxAgeGrace = 10 * time.Second // Goodbye, and then the answer of the client
	}
	h.ln, err = idlenet.Listen(inner, cfg)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 2 * *handshake} // of later requests
	h.ln.AttachHTTP(server)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	log.Printf("listening on %v", h.ln.Addr())
	if err := server.Serve(h.ln); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
}
