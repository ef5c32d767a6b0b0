// Command grpc is a gRPC server on package net with the health service.
//
//	go -C examples run ./grpc
//	grpcurl -plaintext 127.0.0.1:50051 grpc.health.v1.Health/Check
//
// gRPC pings a client that is silent for a third of -read-timeout. The connection is closed if no
// answer comes in -read-timeout, so a call may take as long as it likes. A connection without a
// call gets a GOAWAY after -idle. One that ends no HTTP/2 handshake is closed by gRPC itself after
// -handshake-timeout. SIGTERM drains it: no call is lost, and the clients leave over -drain.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"sync"
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

// parts is the number of servers behind the Listener. A server of gRPC asks all its clients to
// leave at the same moment, so in a drain they leave in as many steps.
const parts = 16

func main() {
	addr := flag.String("addr", "127.0.0.1:50051", "`host:port` to listen on")
	read := flag.Duration("read-timeout", time.Minute, "silence after which a connection is closed, 3s or more")
	idle := flag.Duration("idle", 5*time.Minute, "time without a call after which a client is asked to leave")
	spread := flag.Duration("drain", 20*time.Second, "time over which clients are asked to leave after SIGTERM")
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var servers []*grpc.Server
	var serving sync.WaitGroup
	for range parts {
		server := grpc.NewServer(
			grpc.ConnectionTimeout(*handshake),
			grpc.KeepaliveParams(keepalive.ServerParameters{Time: *read / 3, Timeout: forever, MaxConnectionIdle: *idle}),
		)
		grpc_health_v1.RegisterHealthServer(server, health.NewServer())
		servers = append(servers, server)
		serving.Go(func() {
			if err := server.Serve(ln); ctx.Err() == nil {
				log.Fatal(err)
			}
		})
	}
	log.Printf("listening on %v", ln.Addr())
	<-ctx.Done()
	stop() // a second signal ends the process at once
	drain(ln, servers, *spread)
	serving.Wait()
}

// drain ends the connections over a time. Calls go on until they are answered. A stream that does
// not end keeps the process until the next signal.
func drain(ln *idlenet.Listener, servers []*grpc.Server, spread time.Duration) {
	_ = ln.Close()
	var ends sync.WaitGroup
	for n, server := range servers {
		ends.Go(server.GracefulStop)
		if n < len(servers)-1 && ln.Connections() > 0 {
			time.Sleep(spread / time.Duration(len(servers)))
		}
	}
	ends.Wait()
}
