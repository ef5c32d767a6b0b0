package server_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
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
func ExampleRun() {
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
