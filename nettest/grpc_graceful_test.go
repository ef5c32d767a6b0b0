package nettest

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/idlewheel/idlewheel/idlenet"
)

// pinged makes gRPC ping silent clients. The Listener judges whether they answer. The time is the
// shortest that gRPC allows.
var pinged = keepalive.ServerParameters{Time: time.Second, Timeout: forever}

// A slowServer needs some time for each call.
type slowServer struct {
	pb.UnimplementedTestServiceServer
	delay func() time.Duration
}

func (s slowServer) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	select {
	case <-time.After(s.delay()):
	case <-ctx.Done():
	}
	return &pb.SimpleResponse{}, ctx.Err()
}

// TestGRPCCallLongerThanReadTimeout has a call and a silent stream that take three timeouts.
func TestGRPCCallLongerThanReadTimeout(t *testing.T) {
	t.Parallel()
	const read = 3 * time.Second
	l := listen(t, idlenet.Config{ReadTimeout: read})
	serveGRPC(l, slowServer{delay: func() time.Duration { return 3 * read }}, grpc.KeepaliveParams(pinged))
	var all sync.WaitGroup
	for range 10 {
		client := grpcClient(t, l.address(), false)
		all.Go(func() {
			_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{})
			assert.NoError(t, err)
		})
	}
	all.Wait()
	l.requireNone()
}

// TestNoGRPCCallIsLostByMaxAge leaves the maximum age to gRPC, which sends a GOAWAY.
func TestNoGRPCCallIsLostByMaxAge(t *testing.T) {
	inEachProtocol(t, func(t testing.TB, protocol string) {
		secure := protocol == "h2"
		aging := pinged
		aging.MaxConnectionAge, aging.MaxConnectionAgeGrace = time.Second, 5*time.Second
		l := listen(t, idlenet.Config{ReadTimeout: 10 * time.Second})
		options := append(credentialsOf(secure), grpc.KeepaliveParams(aging))
		serveGRPC(l, slowServer{delay: func() time.Duration { return rand.N(20 * time.Millisecond) }}, options...)
		c := crowd{clients: 20, pause: 20 * time.Millisecond, client: func() func() error { return call(t, grpcClient(t, l.address(), secure)) }}
		c.run(t)
		l.requireNone()
		require.Greater(t, l.Stats().Opened, uint64(20))
	})
}

// TestNoGRPCCallIsLostByADrain has several servers behind one Listener, which stop one after the
// other. Each client has a second address.
func TestNoGRPCCallIsLostByADrain(t *testing.T) {
	inEachProtocol(t, func(t testing.TB, protocol string) {
		secure := protocol == "h2"
		var servers [8]*grpc.Server
		first, second := listen(t, idlenet.Config{ReadTimeout: 10 * time.Second}), listen(t, idlenet.Config{ReadTimeout: 10 * time.Second})
		service := slowServer{delay: func() time.Duration { return rand.N(20 * time.Millisecond) }}
		serveGRPC(second, service, append(credentialsOf(secure), grpc.KeepaliveParams(pinged))...)
		var all sync.WaitGroup
		for n := range servers {
			servers[n] = grpc.NewServer(append(credentialsOf(secure), grpc.KeepaliveParams(pinged))...)
			pb.RegisterTestServiceServer(servers[n], service)
			all.Go(func() { _ = servers[n].Serve(first) })
		}
		const clients = 20
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			for first.Stats().Opened+second.Stats().Opened < clients { // a slow one tries both
				time.Sleep(10 * time.Millisecond)
			}
			_ = first.Close()
			var ends sync.WaitGroup
			for _, server := range servers {
				ends.Go(server.GracefulStop)
				time.Sleep(time.Second / time.Duration(len(servers)))
			}
			ends.Wait()
		}()
		c := crowd{clients: clients, pause: 20 * time.Millisecond, client: func() func() error {
			both := manual.NewBuilderWithScheme("both")
			both.InitialState(resolver.State{Endpoints: []resolver.Endpoint{
				{Addresses: []resolver.Address{{Addr: first.address()}}}, {Addresses: []resolver.Address{{Addr: second.address()}}},
			}})
			return call(t, grpcClient(t, "both:///", secure, grpc.WithResolvers(both), grpc.WithAuthority("127.0.0.1")))
		}}
		c.run(t)
		<-drained
		all.Wait()
		require.Positive(t, first.Stats().Opened)
		require.GreaterOrEqual(t, second.Stats().Opened, uint64(clients), "all have come back")
		eventually(t, "all connections end", func() bool { return first.Connections() == 0 })
		first.requireNone()
	})
}

// call returns a client that makes a call.
func call(t testing.TB, client pb.TestServiceClient) func() error {
	return func() error {
		_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{})
		return err
	}
}
