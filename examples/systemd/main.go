// Command systemd is an echo server on gnet as a service of systemd. It tells systemd when it
// listens or has reloaded its limits.
//
//	go -C examples build -o /usr/local/bin/idlewheel-echo ./systemd
//	install -D -m 644 examples/systemd/limits /etc/idlewheel-echo/limits
//	install -m 644 examples/systemd/idlewheel-echo.service /etc/systemd/system/
//	systemctl enable --now idlewheel-echo
//	editor /etc/idlewheel-echo/limits && systemctl reload idlewheel-echo
//
// A client that sends nothing for read-timeout, in the file of limits, is closed: a new limit holds
// for open connections as well. A file with a mistake changes nothing. On SIGTERM idle connections
// are closed within -drain-spread, and all within -drain-timeout.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
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
	log.Printf("%v closed: %v", c.RemoteAddr(), err)
	return gnet.None
}

// notify tells systemd the state of the service, if it waits for it. See sd_notify(3).
func notify(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	conn, err := net.DialTimeout("unixgram", name, time.Second)
	if err == nil {
		_, err = fmt.Fprint(conn, state)
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		log.Print("systemd was not notified: ", err)
	}
}

func main() {
	cfg := server.Config{
		Addresses: []string{"127.0.0.1:7000"},
		Handler:   &echo{},
		Drain:     server.Drain{Spread: 5 * time.Second, Timeout: 20 * time.Second},
	}
	cfg.AddFlags(flag.CommandLine)
	limits := settings.New(flag.CommandLine, idle.Config{ReadTimeout: time.Minute})
	flag.StringVar(&limits.File, "limits", "", "`file` with limits, read again on SIGHUP")
	flag.Parse()
	hangups := limits.Watch()
	defer hangups.Stop()
	if err := limits.Load(&cfg.Idle); err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cfg.OnStarted = func(s *server.Server) {
		log.Printf("listening on %v", s.Addr())
		notify("READY=1")
		go hangups.Run(ctx, s.Update, func(err error) {
			s.Reloaded(err)
			status := "reloaded: " + limits.Describe(s.Reaper().Config())
			if err != nil {
				status = "not reloaded: " + settings.Explain(err, "")
			}
			log.Print(status)
			notify("STATUS=" + status)
		})
	}
	srv, err := server.New(cfg)
	if err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	if err := srv.RunUntilSignal(ctx); err != nil {
		log.Fatal(err)
	}
}
