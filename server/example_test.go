package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
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

// start runs a server on a free port of this host until stop is called. stop returns the result of
// Run.
func start(cfg server.Config) (s *server.Server, stop func() error) {
	started, result := make(chan struct{}, 2), make(chan error, 1)
	cfg.Addresses = []string{"127.0.0.1:0"}
	cfg.OnStarted = func(*server.Server) { started <- struct{}{} }
	s, err := server.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { result <- s.Run(ctx) }()
	select {
	case <-started:
	case err := <-result:
		log.Fatal(err)
	}
	return s, func() error {
		cancel()
		return <-result
	}
}

func dial(s *server.Server) net.Conn {
	c, err := net.Dial(s.Addr().Network(), s.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// ask sends a message to an echo server and returns the answer.
func ask(c net.Conn, msg string) string {
	fmt.Fprint(c, msg)
	answer := make([]byte, len(msg))
	if _, err := io.ReadFull(c, answer); err != nil {
		log.Fatal(err)
	}
	return string(answer)
}

// A server that survives floods. The first SIGTERM begins a drain, and the second ends it.
func Example() {
	s, err := server.New(server.Config{
		Addresses: []string{"0.0.0.0:7000"},
		Handler:   &echo{},
		Idle: idle.Config{
			ReadTimeout: time.Minute, HandshakeTimeout: 10 * time.Second, MaxConnections: 100_000,
		},
		Sources:         server.SourceLimits{Connections: 1000, Rate: 100},
		PressureTimeout: 15 * time.Second,
		Drain:           server.Drain{Delay: 5 * time.Second, Spread: 10 * time.Second},
		Logger:          slog.Default(),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Stats().Rejected.Total(), "connections were rejected")
}

// counter greets each client with the number of open connections.
type counter struct {
	echo
	reaper *idle.Reaper
}

func (c *counter) OnOpen(gnet.Conn) ([]byte, gnet.Action) {
	return fmt.Appendf(nil, "you are number %d", c.reaper.Connections()), gnet.None
}

// New returns a server with a Reaper, and Run serves until its context is done.
func ExampleNew() {
	handler := &counter{}
	started := make(chan net.Addr)
	s, err := server.New(server.Config{
		Addresses: []string{"127.0.0.1:0"}, // the kernel chooses the port
		Handler:   handler,
		Idle:      idle.Config{ReadTimeout: time.Minute},
		OnStarted: func(s *server.Server) { started <- s.Addr() },
	})
	if err != nil {
		log.Fatal(err)
	}
	handler.reaper = s.Reaper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- s.Run(ctx) }()

	addr := <-started
	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	answer := make([]byte, len("you are number 1"))
	_, _ = io.ReadFull(c, answer)
	fmt.Printf("%s\n", answer)

	cancel()
	fmt.Println(<-result)
	// Output:
	// you are number 1
	// <nil>
}

// New refuses a Config that is wrong, and names everything that is wrong with it.
func ExampleNew_badConfig() {
	_, err := server.New(server.Config{
		Addresses: []string{"127.0.0.1:7000"}, Handler: &echo{}, AcceptRate: -1,
		Idle: idle.Config{ReadTimeout: -1}, Admin: server.Admin{Token: "no address"},
	})
	fmt.Println(errors.Is(err, server.ErrBadConfig))
	fmt.Println(err)
	// Output:
	// true
	// server: Config.AcceptRate is -1: set a positive number, or 0 for any number
	// server: Config.Admin.Addr is not set: set it, for example to 127.0.0.1:7080
	// idle: Config.ReadTimeout is -1ns: set a positive duration such as 60s, or 0 for none
}

// The first SIGTERM begins a drain, here a long one, and the second ends it.
func ExampleServer_RunUntilSignal() {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		log.Fatal(err)
	}
	s, err := server.New(server.Config{
		Addresses: []string{"127.0.0.1:0"},
		Handler:   &echo{},
		Idle:      idle.Config{ReadTimeout: time.Minute},
		Drain:     server.Drain{Delay: time.Hour, Spread: time.Hour},
		OnStarted: func(*server.Server) {
			for range 2 {
				if err := self.Signal(syscall.SIGTERM); err != nil {
					log.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.RunUntilSignal(context.Background()))
	// Output:
	// <nil>
}

// Shutdown closes connections one after the other. In production Delay and Spread are some seconds.
func ExampleServer_Shutdown() {
	s, stop := start(server.Config{
		Handler: &echo{},
		Idle:    idle.Config{ReadTimeout: time.Minute},
		Drain:   server.Drain{Delay: 50 * time.Millisecond, Spread: 50 * time.Millisecond},
	})
	c := dial(s)
	defer c.Close()
	ask(c, "hello")

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(s.Shutdown(ctx))
	_, closed := c.Read(make([]byte, 1))
	fmt.Println(closed)
	fmt.Println(stop())
	// Output:
	// <nil>
	// EOF
	// server: closed
}

// One server listens on several addresses.
func ExampleServer_Addrs() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	started := make(chan *server.Server)
	s, err := server.New(server.Config{
		Addresses: []string{"127.0.0.1:0", "unix://" + dir + "/echo.sock"},
		Handler:   &echo{},
		Idle:      idle.Config{ReadTimeout: time.Minute},
		OnStarted: func(s *server.Server) { started <- s },
	})
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = s.Run(context.Background()) }()
	for _, addr := range (<-started).Addrs() {
		c, err := net.Dial(addr.Network(), addr.String())
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		fmt.Println(addr.Network(), ask(c, "hello"))
	}
	fmt.Println(s.Close())
	// Output:
	// tcp hello
	// unix hello
	// <nil>
}

// Stats for a metrics page: here a second client of one source is above the limit.
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

// A listener that is open already, such as that of a test.
func ExampleConfig_listeners() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	_, stop := start(server.Config{
		Listeners: []net.Listener{ln},
		Handler:   &echo{},
		Idle:      idle.Config{ReadTimeout: time.Minute},
	})
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(ask(c, "hello"), stop())
	// Output:
	// hello <nil>
}

// Other values replace all limits at run time.
func ExampleOutputTotal() {
	s, stop := start(server.Config{Handler: &echo{}, Idle: idle.Config{ReadTimeout: time.Minute}})
	defer stop()
	err := s.Reaper().Update(func(cfg *idle.Config) {
		*cfg = idle.Config{ReadTimeout: 30 * time.Second, MaxConnections: cfg.MaxConnections}
		cfg.OutputLimit.Total = server.OutputTotal(cfg.OutputLimit)
	})
	fmt.Println(err, s.Reaper().Config().OutputLimit.Total > 0)
	// Output: <nil> true
}
