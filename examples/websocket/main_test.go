package main

import (
	"io"
	"math"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/gobwas/ws"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/examples/internal/recipe"
)

func TestMain(m *testing.M) { recipe.Main(m, main) }

var fast = []string{
	"-heartbeat", recipe.Timeout.String(), "-heartbeat-retry", recipe.Timeout.String(),
	"-handshake-timeout", recipe.Timeout.String(),
}

// TestHeartbeat has two clients that send nothing. One of them does not even answer pings.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, fast...)
	living, _, err := websocket.Dial(t.Context(), "ws://"+addr, nil)
	require.NoError(t, err)
	defer func() { _ = living.CloseNow() }()
	dead, _, _, err := ws.Dial(t.Context(), "ws://"+addr)
	require.NoError(t, err)
	defer dead.Close()
	received := make(chan string, 1)
	go func() { // a read answers pings
		_, message, err := living.Read(t.Context())
		if err != nil {
			message = []byte(err.Error())
		}
		received <- string(message)
	}()
	server.Await("closed: idle: connection reaped: heartbeat timeout")
	for range 2 {
		ping, _ := recipe.ReadFrame(t, dead)
		require.Equal(t, ws.OpPing, ping.OpCode)
	}
	last, payload := recipe.ReadFrame(t, dead)
	require.Equal(t, ws.OpClose, last.OpCode)
	code, reason := ws.ParseCloseFrameData(payload)
	require.Equal(t, ws.StatusPolicyViolation, code)
	require.Equal(t, "heartbeat timeout", reason)

	time.Sleep(recipe.Timeout)
	require.NoError(t, living.Write(t.Context(), websocket.MessageText, []byte("still here")))
	require.Equal(t, "still here", <-received)
	require.NoError(t, living.Close(websocket.StatusNormalClosure, ""))
	require.Equal(t, 1, server.Count("reaped"))
}

// TestPythonClient stops the client of Debian's package python3-websockets.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, fast...)
	c := recipe.Client(t, "/usr/bin/python3", "-m", "websockets", "ws://"+addr)
	c.Await("Connected")
	c.Say("hello")
	c.Await("< hello")
	time.Sleep(3 * recipe.Timeout)
	server.RequireNone("closed")
	require.NoError(t, c.Process.Signal(syscall.SIGSTOP))
	server.Await("closed: idle: connection reaped: heartbeat timeout")
	require.NoError(t, c.Process.Signal(syscall.SIGCONT))
	c.Await("Connection closed")
}

// TestNoHandshake has a client that never ends its request.
func TestNoHandshake(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t, fast...)
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n")
	require.NoError(t, err)
	answer, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Contains(t, string(answer), "408")
	server.Await("closed: idle: connection reaped: no handshake")
}

// TestFragments has a client that sends a binary message in two frames, with a ping between them,
// and one that announces a frame of 2^63-1 bytes.
func TestFragments(t *testing.T) {
	t.Parallel()
	server, addr := recipe.Serve(t)
	dial := func() net.Conn {
		c, _, _, err := ws.Dial(t.Context(), "ws://"+addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	c := dial()
	for _, f := range []ws.Frame{
		ws.NewFrame(ws.OpBinary, false, []byte{0xff}), ws.NewPingFrame(nil), ws.NewFrame(ws.OpContinuation, true, []byte{0xfe}),
	} {
		require.NoError(t, ws.WriteFrame(c, ws.MaskFrame(f)))
	}
	head, _ := recipe.ReadFrame(t, c)
	require.Equal(t, ws.OpPong, head.OpCode)
	head, payload := recipe.ReadFrame(t, c)
	require.Equal(t, ws.OpBinary, head.OpCode)
	require.Equal(t, []byte{0xff, 0xfe}, payload)

	c = dial()
	require.NoError(t, ws.WriteFrame(c, ws.MaskFrame(ws.NewFrame(ws.OpText, false, []byte("a")))))
	require.NoError(t, ws.WriteHeader(c, ws.Header{Fin: true, OpCode: ws.OpContinuation, Masked: true, Length: math.MaxInt64}))
	head, _ = recipe.ReadFrame(t, c)
	require.Equal(t, ws.OpClose, head.OpCode)
	server.RequireAlive()
}
