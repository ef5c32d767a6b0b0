package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
)

type echo struct{ gnet.BuiltinEventEngine }

func (*echo) OnTraffic(c gnet.Conn) gnet.Action {
	msg, _ := c.Next(-1)
	_, _ = c.Write(msg)
	return gnet.None
}

// A server that survives floods, and that goes little by little at the first SIGTERM and at once at the second.
//
// In some of the examples below start runs a server on a free port until stop is called, dial is a client of it, and ask says something
// to the echo and returns the answer.
func Example() {
	ctx, again, stop := server.Signals(context.Background())
	defer stop()

	var running *server.Server // for metrics, and for new limits: running.Reaper().Update
	err := server.Run(ctx, server.Config{
		Addr:            "0.0.0.0:7000",
		Handler:         &echo{},
		Idle:            idle.Config{ReadTimeout: time.Minute, HandshakeTimeout: 10 * time.Second},
		MaxConnections:  100_000,
		Sources:         server.SourceLimits{Connections: 1000, Rate: 100},
		PressureTimeout: 15 * time.Second,
		Started:         func(s *server.Server) { running = s },
		Stopping:        func() { log.Print("let the readiness probe fail from here on") },
		Drain:           server.Drain{Delay: 5 * time.Second, Spread: 10 * time.Second},
		StopNow:         again,
		Restart:         true,
		Logger:          slog.Default(),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(running.Stats().Rejected.Total(), "connections were rejected")
}

// Run serves until its context is done. Port 0 is a free one, which Started is told.
func ExampleRun() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started, result := make(chan *server.Server, 1), make(chan error, 1)
	go func() {
		result <- server.Run(ctx, server.Config{
			Addr:    "127.0.0.1:0",
			Handler: &echo{},
			Idle:    idle.Config{ReadTimeout: time.Minute},
			Started: func(s *server.Server) { started <- s },
		})
	}()
	addr := (<-started).Addr()

	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "hello")
	answer := make([]byte, len("hello"))
	_, _ = io.ReadFull(c, answer)
	fmt.Printf("%s\n", answer)

	cancel()
	fmt.Println(<-result)
	// Output:
	// hello
	// <nil>
}

// A Config that is wrong is refused before anything is started, with all that is wrong.
func ExampleRun_badConfig() {
	err := server.Run(context.Background(), server.Config{Addr: "127.0.0.1:7000", AcceptRate: -1})
	fmt.Println(errors.Is(err, server.ErrBadConfig))
	fmt.Println(err)
	// Output:
	// true
	// server: Config.Handler is nil: set the gnet.EventHandler to run
	// server: Config.AcceptRate is -1: set a positive number, or 0 for any
}

// The first SIGTERM begins the end of a server, here a long one, and the second ends it at once.
func ExampleSignals() {
	ctx, again, stop := server.Signals(context.Background())
	defer stop()

	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		log.Fatal(err)
	}
	sigterm := func() {
		if err := self.Signal(syscall.SIGTERM); err != nil {
			log.Fatal(err)
		}
	}
	err = server.Run(ctx, server.Config{
		Addr:    "127.0.0.1:0",
		Handler: &echo{},
		Idle:    idle.Config{ReadTimeout: time.Minute},
		Started: func(*server.Server) { sigterm() },
		Stopping: func() {
			fmt.Println("not ready any more")
			sigterm()
		},
		Drain:   server.Drain{Delay: time.Hour, Spread: time.Hour},
		StopNow: again,
	})
	fmt.Println(err)
	// Output:
	// not ready any more
	// <nil>
}

// When the context is done, connections go one after the other. In earnest that would take some seconds.
func ExampleDrain() {
	s, stop := start(server.Config{
		Handler:  &echo{},
		Idle:     idle.Config{ReadTimeout: time.Minute},
		Stopping: func() { fmt.Println("let the readiness probe fail from here on") },
		Drain:    server.Drain{Delay: 50 * time.Millisecond, Spread: 50 * time.Millisecond},
	})
	c := dial(s)
	defer c.Close()
	ask(c, "hello")

	err := stop()
	_, closed := c.Read(make([]byte, 1))
	fmt.Println(err, closed)
	// Output:
	// let the readiness probe fail from here on
	// <nil> EOF
}

// What a metrics page shows: here one client too many of one source.
func ExampleServer_Stats() {
	s, stop := start(server.Config{
		Handler: &echo{},
		Idle:    idle.Config{ReadTimeout: time.Minute},
		Sources: server.SourceLimits{Connections: 1},
	})
	first := dial(s)
	defer first.Close()
	ask(first, "hello")
	second := dial(s)
	defer second.Close()
	_, _ = io.ReadAll(second) // it is closed at once

	stats := s.Stats()
	fmt.Println(stats.Connections, "open,", stats.Rejected.Source, "of", stats.Rejected.Total(), "rejected for its source")
	fmt.Println("since then", s.Reaper().Stats().Opened, "was served:", stop())
	// Output:
	// 1 open, 1 of 1 rejected for its source
	// since then 1 was served: <nil>
}

// New limits at run time reach connections that are open.
func ExampleServer_Reaper() {
	s, stop := start(server.Config{
		Handler: &echo{},
		Idle:    idle.Config{ReadTimeout: time.Hour, KeepClosed: 1},
	})
	c := dial(s)
	defer c.Close()
	ask(c, "hello")

	if err := s.Reaper().Update(func(cfg *idle.Config) { cfg.ReadTimeout = 200 * time.Millisecond }); err != nil {
		log.Fatal(err)
	}
	_, closed := c.Read(make([]byte, 1))
	found, err := s.Reaper().Inspect(context.Background(), idle.Query{Closed: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(closed, found.Closed[0].Err.Reason)
	fmt.Println(stop())
	// Output:
	// EOF read idle
	// <nil>
}

// mortal is an echo that hands out its engine.
type mortal struct {
	echo
	engines chan gnet.Engine
}

func (m *mortal) OnBoot(eng gnet.Engine) gnet.Action {
	m.engines <- eng
	return gnet.None
}

// An engine that has died is followed by another one on the same address, and by the same Server.
func ExampleConfig_restart() {
	h := &mortal{engines: make(chan gnet.Engine, 2)}
	s, stop := start(server.Config{
		Handler: h,
		Idle:    idle.Config{ReadTimeout: time.Minute},
		Restart: true,
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = (<-h.engines).Stop(ctx) // as an accept that fails does
	<-h.engines

	c := dial(s)
	defer c.Close()
	fmt.Println(ask(c, "still there?"))
	fmt.Println(s.Stats().Restarts, "restart,", stop())
	// Output:
	// still there?
	// 1 restart, <nil>
}

// A source is a network rather than an address.
func ExampleNewSources() {
	sources, err := server.NewSources(server.SourceLimits{Connections: 2, IPv4Bits: 24})
	if err != nil {
		log.Fatal(err)
	}
	for _, from := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "198.51.100.1"} {
		fmt.Println(from, sources.Admit(netip.MustParseAddr(from)))
	}
	sources.Release(netip.MustParseAddr("192.0.2.1"))
	fmt.Println("and now", sources.Admit(netip.MustParseAddr("192.0.2.3")))
	// Output:
	// 192.0.2.1 <nil>
	// 192.0.2.2 <nil>
	// 192.0.2.3 server: too many connections of one source: 192.0.2.0/24 has 2 open
	// 198.51.100.1 <nil>
	// and now <nil>
}
