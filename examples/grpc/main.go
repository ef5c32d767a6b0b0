// Command grpc is a gRPC server on package net with the health service.
//
//	go -C examples run ./grpc
//	grpcurl -plaintext 127.0.0.1:50051 grpc.health.v1.Health/Check
//
// gRPC pings a client that is silent for a third of -read-timeout. The connection is closed if no
// answer comes in -read-timeout, so a call may take as long as it likes. A connection without a
// call gets a GOAWAY after -idle. One that ends no HTTP/2 handshake is closed by gRPC itself after
// -handshake-timeout.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/idlewheel/idlewheel/idlenet"
)

// forever is the time that gRPC itself waits for the answer to a ping: the Listener judges, because
// gRPC would close living connections after a stall of this process.
const forever = 365 * 24 * time.Hour

func main() {
	addr := flag.String("addr", "127.0.0.1:50051", "`host:port` to listen on")
	read := flag.Duration("read-timeout", time.Minute, "silence after which a connection is closed, 3s or more")
	idle := flag.Duration("idle", 5*time.Minute, "time without a call after which a client is asked to leave")
	handshake := flag.Duration("handshake-timeout", 10*time.Second, "time for the HTTP/2 handshake")
	flag.Parse()
	inner, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	ln, err := idlenet.Listen(inner, idlenet.Config{
		ReadTimeout: *read,
		OnReap: func(c net.Conn, reason *idlenet.ReapError) {
			log.Printf("%v closed: %v", c.RemoteAddr(), reason)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.ConnectionTimeout(*handshake),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: *read / 3, Timeout: forever, MaxConnectionIdle: *idle}),
	)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, server.Stop)
	log.Printf("listening on %v", ln.Addr())
	if err := server.Serve(ln); err != nil {
		log.Fatal(err)
	}
}
