// Command grpc is a gRPC server on package net with the health service.
//
//	go -C examples run ./grpc
//	grpcurl -plaintext 127.0.0.1:50051 grpc.health.v1.Health/Check
//
// A connection on which nothing is sent in either direction for -all-timeout is closed; a stream in
// which only the server sends keeps its connection. A client of a silent stream sends keepalive
// pings (keepalive.ClientParameters), which the server allows every -min-ping. A connection that
// ends no HTTP/2 handshake is closed by gRPC itself after -handshake-timeout.
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

func main() {
	addr := flag.String("addr", "127.0.0.1:50051", "`host:port` to listen on")
	all := flag.Duration("all-timeout", time.Minute, "silence in both directions after which a connection is closed")
	handshake := flag.Duration("handshake-timeout", 10*time.Second, "time for the HTTP/2 handshake")
	minPing := flag.Duration("min-ping", 10*time.Second, "shortest interval of pings that clients may send")
	flag.Parse()
	inner, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	ln, err := idlenet.Listen(inner, idlenet.Config{
		AllTimeout: *all,
		OnReap: func(c net.Conn, reason *idlenet.ReapError) {
			log.Printf("%v closed: %v", c.RemoteAddr(), reason)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.ConnectionTimeout(*handshake),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: *minPing, PermitWithoutStream: true}),
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
