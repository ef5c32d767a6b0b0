// Command websocket is a WebSocket echo server on gnet, with the frames of github.com/gobwas/ws.
//
//	go -C examples run ./websocket -heartbeat 5s
//	python3 -m websockets ws://127.0.0.1:8080   # in another terminal; kill -STOP it
//
// A silent client gets a ping after -heartbeat. If it does not answer two pings, it is
// closed, with a close frame that has the reason. A connection without a WebSocket handshake is
// closed after -handshake-timeout.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"time"

	"github.com/gobwas/ws"
	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
	"github.com/idlewheel/idlewheel/settings"
)

const maxHead = 16 << 10 // bytes of the HTTP request

type echo struct {
	gnet.BuiltinEventEngine
	reaper *idle.Reaper
}

func (e *echo) OnClose(c gnet.Conn, err error) gnet.Action {
	log.Printf("%v closed: %v", c.RemoteAddr(), err)
	return gnet.None
}

func (e *echo) OnTraffic(c gnet.Conn) gnet.Action {
	for {
		buffered, _ := c.Peek(-1)
		s, upgraded := c.Context().(*session)
		var n int
		var err error
		if upgraded {
			n, err = s.frame(c, buffered)
		} else {
			n, err = e.upgrade(c, buffered)
		}
		if err != nil {
			return gnet.Close
		}
		if n == 0 {
			return gnet.None // the rest is on its way
		}
		_, _ = c.Discard(n)
	}
}

// upgrade answers the HTTP request, and returns its length.
func (e *echo) upgrade(c gnet.Conn, b []byte) (n int, err error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		if len(b) > maxHead {
			return 0, errors.New("the head of the request is too long")
		}
		return 0, nil
	}
	n = end + len("\r\n\r\n")
	if _, err := ws.Upgrade(struct {
		io.Reader
		io.Writer
	}{bytes.NewReader(b[:n]), c}); err != nil {
		return 0, err // the client has got it too
	}
	conn, _ := e.reaper.Conn(c)
	conn.Ready() // the handshake is over
	c.SetContext(&session{})
	return n, nil
}

// goodbye returns the last bytes for a client that is reaped.
func goodbye(c gnet.Conn, reason *idle.ReapError) []byte {
	if c.Context() == nil { // before the WebSocket handshake
		return []byte("HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	}
	return closeFrame(ws.StatusPolicyViolation, reason.Reason.Error())
}

func main() {
	e := &echo{}
	cfg := server.Config{Addresses: []string{"127.0.0.1:8080"}, Handler: e, OnStarted: func(s *server.Server) {
		log.Printf("listening on %v", s.Addr())
	}}
	cfg.AddFlags(flag.CommandLine)
	limits := settings.New(flag.CommandLine, idle.Config{
		HandshakeTimeout: 10 * time.Second,
		Heartbeat:        idle.Heartbeat{Interval: 30 * time.Second, Retry: 10 * time.Second},
		OutputLimit:      idle.OutputLimit{Hard: 2 * maxMessage},
	})
	flag.Parse()
	cfg.Idle.Goodbye = goodbye
	cfg.Idle.Heartbeat.Ping = func(gnet.Conn) []byte { return ws.CompiledPing }
	if err := limits.Load(&cfg.Idle); err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	srv, err := server.New(cfg)
	if err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	e.reaper = srv.Reaper()
	if err := srv.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}
