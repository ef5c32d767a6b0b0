package connlimit

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheClientThatWaitsLongestIsClosed(t *testing.T) {
	l := &Limiter{Max: 4}
	conns := map[string]*fakeConn{}
	see := func(name string, state http.ConnState) { // x and y have another address than all others
		if conns[name] == nil {
			conns[name] = &fakeConn{port: 1, ip: map[bool]byte{true: 1, false: 2}[name == "x" || name == "y"]}
		}
		l.ConnState(conns[name], state)
	}
	closed := func() (names string) {
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			if conns[name] != nil && conns[name].closed {
				names += name
			}
		}
		return names
	}
	see("x", http.StateNew) // the only one of its address: it stays
	see("a", http.StateNew)
	see("b", http.StateNew)
	see("c", http.StateNew)
	require.Empty(t, closed())
	see("a", http.StateActive)
	see("d", http.StateNew)
	require.Equal(t, "b", closed(), "b has waited longest without a request")
	see("b", http.StateClosed)
	see("c", http.StateActive)
	see("c", http.StateIdle)
	see("e", http.StateNew)
	require.Equal(t, "bd", closed(), "c has sent a request since")
	see("c", http.StateActive)
	see("e", http.StateActive)
	see("f", http.StateNew)
	require.Equal(t, "bdf", closed(), "all others have a request")
	see("a", http.StateClosed)
	see("g", http.StateNew)
	require.Equal(t, "bdf", closed(), "there is room")
	see("g", http.StateActive)
	see("y", http.StateNew)
	require.Equal(t, "bcdf", closed(), "their address has the most connections, and the request of c is the oldest")
	require.False(t, conns["y"].closed)
	require.False(t, conns["x"].closed)
}

// A fakeConn records that it was closed.
type fakeConn struct {
	net.Conn
	ip     byte
	port   int
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(10, 0, 0, c.ip), Port: c.port}
}

func (c *fakeConn) Close() error {
	c.closed = true
	return nil
}
