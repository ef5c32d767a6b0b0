// Command addresses is one echo server on several addresses, TCP and unix, on gnet.
//
//	go -C examples run ./addresses -max-connections 100
//	socat - TCP:127.0.0.1:7000            # in another terminal
//	socat - UNIX-CONNECT:/tmp/echo.sock   # in a third one
//
// Each -addr adds an address and replaces the two above. A client that sends nothing for
// -read-timeout is closed, whatever its address. The limits, such as -max-connections, hold for all
// addresses together: at the limit the connections that have been silent longest are closed.
package main

import (
	"context"
	"flag"
	"log"
	"strings"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
	"github.com/idlewheel/idlewheel/settings"
)

type echo struct{ gnet.BuiltinEventEngine }

func (*echo) OnTraffic(c gnet.Conn) gnet.Action {
	message, _ := c.Next(-1)
	_, _ = c.Write(message)
	return gnet.None
}

func (*echo) OnClose(c gnet.Conn, err error) gnet.Action {
	log.Printf("a client of %s closed: %v", c.LocalAddr().Network(), err) // of unix it has no name
	return gnet.None
}

func main() {
	cfg := server.Config{Addresses: []string{"127.0.0.1:7000", "unix:///tmp/echo.sock"}, Handler: &echo{}, OnStarted: func(s *server.Server) {
		var all []string
		for _, addr := range s.Addrs() {
			all = append(all, addr.String())
		}
		log.Printf("listening on %s", strings.Join(all, " and "))
	}}
	cfg.AddFlags(flag.CommandLine)
	limits := settings.New(flag.CommandLine, idle.Config{ReadTimeout: time.Minute})
	flag.Parse()
	if err := limits.Load(&cfg.Idle); err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	srv, err := server.New(cfg)
	if err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	if err := srv.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}
