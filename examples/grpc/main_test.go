package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/idlewheel/idlewheel/examples/internal/recipe"
)

func TestMain(m *testing.M) { recipe.Main(m, main) }

// TestTimeout has a client without a call that answers pings, and one that sends no byte.
func TestTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second // gRPC pings once a second at most
	server, addr := recipe.Serve(t, "-read-timeout", timeout.String(), "-handshake-timeout", "1h")
	client := dial(t, addr)
	mute := recipe.Client(t, "socat", "-", "TCP:"+addr)
	recipe.Eventually(t, "one connection is closed", func() bool { return server.Count("reaped: read idle") == 1 })
	mute.AwaitEnd()
	time.Sleep(2 * timeout)
	require.Equal(t, connectivity.Ready, client.GetState())
	require.Equal(t, 1, server.Count("closed"))
}

// TestIdle has a client that is asked to leave.
func TestIdle(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, "-idle", "1s")
	client := dial(t, addr)
	recipe.Eventually(t, "the client leaves", func() bool { return client.GetState() == connectivity.Idle })
	server.RequireNone("closed")
}

// TestStop stops the server for longer than the timeout, while a client has a stream.
func TestStop(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	server, addr := recipe.Serve(t, "-read-timeout", timeout.String())
	stream, err := grpc_health_v1.NewHealthClient(dial(t, addr)).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		ended <- err
	}()
	require.NoError(t, server.Process.Signal(syscall.SIGSTOP))
	time.Sleep(timeout * 3 / 2)
	require.NoError(t, server.Process.Signal(syscall.SIGCONT))
	time.Sleep(timeout)
	require.Empty(t, ended)
	server.RequireNone("closed")
}

// TestDrain has clients that leave one after the other.
func TestDrain(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, "-drain", "1s")
	var clients []*grpc.ClientConn
	for range 40 {
		clients = append(clients, dial(t, addr))
	}
	began := time.Now()
	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	require.Zero(t, server.AwaitEnd())
	// A server that has accepted none takes no step, and it is chance which one accepts a client.
	require.Greater(t, time.Since(began), 100*time.Millisecond, "the clients do not leave at once")
	for _, c := range clients {
		recipe.Eventually(t, "a client leaves", func() bool { return c.GetState() != connectivity.Ready })
	}
	server.RequireNone("closed")
}

// dial returns a client that has made a call.
func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	client, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	answer, err := grpc_health_v1.NewHealthClient(client).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.GetStatus())
	return client
}
