package main

import (
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

// TestTimeout has a client with a call in each beat, a silent one, and one that sends no byte.
func TestTimeout(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, "-all-timeout", recipe.Timeout.String(), "-handshake-timeout", "1h")
	dial := func() (*grpc.ClientConn, func()) {
		client, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		check := func() {
			answer, err := grpc_health_v1.NewHealthClient(client).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			require.NoError(t, err)
			require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.GetStatus())
		}
		check()
		return client, check
	}
	living, check := dial()
	silent, _ := dial()
	mute := recipe.Client(t, "socat", "-", "TCP:"+addr)
	for range 3 * recipe.Timeout / recipe.Beat {
		check()
		time.Sleep(recipe.Beat)
	}
	recipe.Eventually(t, "two connections are closed", func() bool { return server.Count("reaped: all idle") == 2 })
	require.Equal(t, connectivity.Ready, living.GetState())
	recipe.Eventually(t, "the silent client notices", func() bool { return silent.GetState() == connectivity.Idle })
	mute.AwaitEnd()
	require.Equal(t, 2, server.Count("closed"))
}
