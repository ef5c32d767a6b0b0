package nettest_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/idlewheel/idlewheel/idlenet"
)

// A gRPC server. AllTimeout suits streams in which only the server sends; with ReadTimeout a client
// needs keepalive.ClientParameters with a Time below it.
func Example_gRPC() {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ln, err := idlenet.Listen(inner, idlenet.Config{
		AllTimeout: 200 * time.Millisecond,
		OnReap:     func(_ net.Conn, reason *idlenet.ReapError) { fmt.Println(reason.Reason) },
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go server.Serve(ln)

	client, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	answer, err := grpc_health_v1.NewHealthClient(client).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	fmt.Println(answer.GetStatus(), err)
	for ln.Connections() > 0 { // until the silent connection has ended
		time.Sleep(10 * time.Millisecond)
	}
	server.Stop()
	// Output:
	// SERVING <nil>
	// all idle
}
