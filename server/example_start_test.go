package server_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/idlewheel/idlewheel/server"
)

// start runs a server on a free port of this host, until stop is called.
func start(cfg server.Config) (s *server.Server, stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	started, result := make(chan *server.Server, 2), make(chan error, 1)
	cfg.Addr = "127.0.0.1:0"
	cfg.Started = func(s *server.Server) { started <- s }
	go func() { result <- server.Run(ctx, cfg) }()
	select {
	case s = <-started:
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

// ask returns what an echo answers.
func ask(c net.Conn, msg string) string {
	fmt.Fprint(c, msg)
	answer := make([]byte, len(msg))
	if _, err := io.ReadFull(c, answer); err != nil {
		log.Fatal(err)
	}
	return string(answer)
}
