package nettest

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"

	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/reap"
)

// A grpcServer has a call of each kind.
type grpcServer struct {
	pb.UnimplementedTestServiceServer
	ended chan grpcEnd // FullDuplexCalls that have failed
}

// A grpcEnd is a call that has failed.
type grpcEnd struct {
	peer net.Addr
	err  error
}

func (grpcServer) UnaryCall(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{Hostname: "test"}, nil
}

// StreamingOutputCall sends a message per beat for the time that is long.
func (grpcServer) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, s pb.TestService_StreamingOutputCallServer) (err error) {
	everyBeat(long, func() { err = s.Send(&pb.StreamingOutputCallResponse{}) })
	return err
}

// StreamingInputCall counts messages.
func (grpcServer) StreamingInputCall(s pb.TestService_StreamingInputCallServer) error {
	for n := int32(0); ; n++ {
		switch _, err := s.Recv(); err {
		case nil:
		case io.EOF:
			return s.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: n})
		default:
			return err
		}
	}
}

// FullDuplexCall answers each message.
func (g grpcServer) FullDuplexCall(s pb.TestService_FullDuplexCallServer) error {
	for {
		_, err := s.Recv()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = s.Send(&pb.StreamingOutputCallResponse{})
		}
		if err != nil {
			from, _ := peer.FromContext(s.Context())
			g.ended <- grpcEnd{from.Addr, err}
			return err
		}
	}
}

// credentialsOf returns the options of a server with TLS, or without.
func credentialsOf(secure bool) (options []grpc.ServerOption) {
	if secure {
		options = append(options, grpc.Creds(credentials.NewTLS(serverTLS())))
	}
	return options
}

func serveGRPC[S pb.TestServiceServer](l *listener, service S, options ...grpc.ServerOption) S {
	server := grpc.NewServer(options...)
	pb.RegisterTestServiceServer(server, service)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	l.t.Cleanup(func() {
		server.Stop()
		require.NoError(l.t, <-served)
	})
	return service
}

func dialGRPC(addr string, secure bool, options ...grpc.DialOption) (pb.TestServiceClient, *grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if secure {
		creds = credentials.NewTLS(clientTLS())
	}
	c, err := grpc.NewClient(addr, append(options, grpc.WithTransportCredentials(creds))...)
	return pb.NewTestServiceClient(c), c, err
}

func grpcClient(t testing.TB, addr string, secure bool, options ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	client, c, err := dialGRPC(addr, secure, options...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return client
}

// TestGRPCLivingCalls has calls of each kind with a message per beat, on a connection of their own.
// The peer of a server stream need not send, so the limit is AllTimeout there.
func TestGRPCLivingCalls(t *testing.T) {
	t.Parallel()
	read, all := idlenet.Config{ReadTimeout: timeout}, idlenet.Config{AllTimeout: timeout}
	for name, tc := range map[string]struct {
		cfg  idlenet.Config
		call func(testing.TB, pb.TestServiceClient)
	}{
		"unary":         {read, unaryCalls},
		"client stream": {read, clientStream},
		"server stream": {all, serverStream},
		"both":          {read, duplexStream},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " TLS"}[secure], func(t *testing.T) {
				t.Parallel()
				l := listen(t, tc.cfg)
				serveGRPC(l, grpcServer{ended: make(chan grpcEnd, 100)}, credentialsOf(secure)...)
				tc.call(t, grpcClient(t, l.address(), secure))
				l.requireNone()
				require.EqualValues(t, 1, l.Stats().Opened)
			})
		}
	}
}

func unaryCalls(t testing.TB, client pb.TestServiceClient) {
	everyBeat(long, func() {
		_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{})
		require.NoError(t, err)
	})
}

func clientStream(t testing.TB, client pb.TestServiceClient) {
	stream, err := client.StreamingInputCall(t.Context())
	require.NoError(t, err)
	sent := int32(0)
	everyBeat(long, func() {
		require.NoError(t, stream.Send(&pb.StreamingInputCallRequest{}))
		sent++
	})
	answer, err := stream.CloseAndRecv()
	require.NoError(t, err)
	require.Equal(t, sent, answer.GetAggregatedPayloadSize())
}

func serverStream(t testing.TB, client pb.TestServiceClient) {
	stream, err := client.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{})
	require.NoError(t, err)
	for {
		if _, err = stream.Recv(); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, io.EOF)
}

func duplexStream(t testing.TB, client pb.TestServiceClient) {
	stream, err := client.FullDuplexCall(t.Context())
	require.NoError(t, err)
	everyBeat(long, func() {
		require.NoError(t, stream.Send(&pb.StreamingOutputCallRequest{}))
		_, err := stream.Recv()
		require.NoError(t, err)
	})
	require.NoError(t, stream.CloseSend())
}

// TestGRPCStoppedClient stops one of two client processes in a call. The server pings both.
func TestGRPCStoppedClient(t *testing.T) {
	t.Parallel()
	l := listen(t, idlenet.Config{ReadTimeout: timeout})
	g := serveGRPC(l, grpcServer{ended: make(chan grpcEnd, 100)}, grpc.KeepaliveParams(pinged))
	stopped, living := startRole(t, "gRPC client", l.address()), startRole(t, "gRPC client", l.address())
	for _, c := range []*child{stopped, living} {
		c.read(new(int))
	}
	stopped.signal(syscall.SIGSTOP)
	end := <-g.ended
	require.Error(t, end.err)
	require.Equal(t, map[string]idlenet.Reason{end.peer.String(): reap.ReadIdle}, l.reasons())
	var before, after int
	living.read(&before)
	eventually(t, "the living client goes on", func() bool {
		living.read(&after)
		return after > before+6
	})
	require.Len(t, l.reasons(), 1)
}

// grpcClientProcess has a stream with a message per beat, and prints the number of answers.
func grpcClientProcess(args []string) error {
	client, _, err := dialGRPC(args[0], false)
	if err != nil {
		return err
	}
	stream, err := client.FullDuplexCall(context.Background())
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		if err := stream.Send(&pb.StreamingOutputCallRequest{}); err != nil {
			return err
		}
		if _, err := stream.Recv(); err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(n); err != nil {
			return err
		}
		time.Sleep(beat)
	}
}
