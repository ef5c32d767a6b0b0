package server_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/idlewheel/idlewheel/server"
)

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
