package nettest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/reap"
)

// A WebSocket server that sends pings to silent clients. The client here does not read, so it does
// not answer them.
func Example_webSocket() {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	var clients sync.Map // *websocket.Conn by the address of the client
	ln, err := idlenet.Listen(inner, idlenet.Config{Heartbeat: idlenet.Heartbeat{
		Interval: 200 * time.Millisecond, MaxMissed: 2,
		Ping: func(c net.Conn) {
			if client, ok := clients.Load(c.RemoteAddr().String()); ok {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = client.(*websocket.Conn).Ping(ctx)
			}
		},
	}})
	if err != nil {
		log.Fatal(err)
	}

	left := make(chan error)
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			client, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			defer client.CloseNow()
			clients.Store(r.RemoteAddr, client)
			defer clients.Delete(r.RemoteAddr)
			for err == nil {
				_, _, err = client.Read(r.Context())
			}
			if reason := ln.Reason(idlenet.ConnOf(r.Context())); reason != nil {
				err = errors.Join(err, reason)
			}
			left <- err
		}),
	}
	ln.AttachHTTP(server)
	go server.Serve(ln)
	defer server.Close()

	client, _, err := websocket.Dial(context.Background(), "ws://"+ln.Addr().String(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.CloseNow()
	fmt.Println(errors.Is(<-left, reap.HeartbeatTimeout))
	// Output: true
}
