package nettest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idlenet"
	"github.com/idlewheel/idlewheel/reap"
)

// A chat is a WebSocket server that sends each message to all clients.
type chat struct {
	*listener
	url   string
	ended chan chatEnd
	mu    sync.Mutex
	conns map[string]*websocket.Conn // guarded by mu; by the address of the client
}

// A chatEnd says why a client has left.
type chatEnd struct {
	name string
	err  error
}

// serveChat starts a chat. Its heartbeats are pings of the protocol.
func serveChat(t testing.TB, cfg idlenet.Config) *chat {
	c := &chat{ended: make(chan chatEnd, 100), conns: make(map[string]*websocket.Conn)}
	if cfg.Heartbeat.Interval > 0 {
		cfg.Heartbeat.Ping = c.ping
	}
	c.listener = listen(t, cfg)
	c.url = serveHTTP(c.listener, &http.Server{Handler: c})
	return c
}

// ServeHTTP serves a client.
func (c *chat) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	c.mu.Lock()
	c.conns[r.RemoteAddr] = ws
	c.mu.Unlock()
	for err == nil {
		var text []byte
		if _, text, err = ws.Read(r.Context()); err == nil {
			c.send(r.Context(), text)
		}
	}
	c.mu.Lock()
	delete(c.conns, r.RemoteAddr)
	c.mu.Unlock()
	if reason := c.Reason(connOf(r)); reason != nil {
		err = errors.Join(err, reason)
	}
	c.ended <- chatEnd{r.URL.Query().Get("name"), err}
}

// send sends a message to all clients.
func (c *chat) send(ctx context.Context, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ws := range c.conns {
		_ = ws.Write(ctx, websocket.MessageText, text)
	}
}

// ping sends a ping of WebSocket.
func (c *chat) ping(conn net.Conn) {
	c.mu.Lock()
	ws := c.conns[conn.RemoteAddr().String()]
	c.mu.Unlock()
	if ws != nil {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		_ = ws.Ping(ctx)
	}
}

// join connects a client.
func (c *chat) join(name string) *websocket.Conn {
	c.t.Helper()
	ws, _, err := websocket.Dial(c.t.Context(), c.url+"?name="+name, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{TLSClientConfig: clientTLS("http/1.1")}},
	})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

// listenTo reads the messages for a client. So the client answers pings.
func (c *chat) listenTo(ws *websocket.Conn) <-chan string {
	heard := make(chan string, 1000)
	go func() {
		defer close(heard)
		for {
			_, text, err := ws.Read(c.t.Context())
			if err != nil {
				return
			}
			heard <- string(text)
		}
	}()
	return heard
}

// awaitOnlyEnd requires that exactly one client has left, and why.
func (c *chat) awaitOnlyEnd(name string, want idlenet.Reason) {
	c.t.Helper()
	select {
	case end := <-c.ended:
		require.Equal(c.t, name, end.name)
		require.ErrorIs(c.t, end.err, want)
	case <-time.After(30 * time.Second):
		require.Fail(c.t, "no client has left")
	}
	require.Empty(c.t, c.ended)
	require.Len(c.t, c.reasons(), 1)
}

// TestWebSocketChat has a client that talks, one that only sends pings, and one that only listens.
func TestWebSocketChat(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := serveChat(t, idlenet.Config{ReadTimeout: timeout})
	silent, pinging, talking := c.join("silent"), c.join("pinging"), c.join("talking")
	heard := c.listenTo(talking)
	c.listenTo(pinging)
	said := 0
	everyBeat(3*timeout, func() {
		require.NoError(t, talking.Write(ctx, websocket.MessageText, []byte("beat")))
		require.NoError(t, pinging.Ping(ctx))
		said++
	})
	c.awaitOnlyEnd("silent", reap.ReadIdle)
	for range said {
		require.Equal(t, "beat", <-heard)
	}
	for range said { // the silent client was told nothing after the end
		if _, _, err := silent.Read(ctx); err != nil {
			return
		}
	}
	require.Fail(t, "the silent client is still connected")
}

// TestWebSocketHeartbeat has a client that answers pings, and one that does not read them.
func TestWebSocketHeartbeat(t *testing.T) {
	t.Parallel()
	c := serveChat(t, idlenet.Config{
		ReadTimeout: forever, Heartbeat: idlenet.Heartbeat{Interval: timeout / 2, Retry: timeout / 2, MaxMissed: 2},
	})
	c.listenTo(c.join("answering"))
	c.join("deaf")
	c.awaitOnlyEnd("deaf", reap.HeartbeatTimeout)
	pings := c.Stats().Pings
	eventually(t, "more pings", func() bool { return c.Stats().Pings > pings+5 })
	require.Empty(t, c.ended)
	require.Len(t, c.reasons(), 1)
}
