package idle

import (
	"testing"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
)

// A fakeConn is a gnet.Conn with the few methods that a table needs. A scriptedConn has one, and
// tests of tables use it.
type fakeConn struct {
	gnet.Conn
	fd       int
	buffered int
	outbound int
	el       gnet.EventLoop
}

func (c *fakeConn) Fd() int                   { return c.fd }
func (c *fakeConn) InboundBuffered() int      { return c.buffered }
func (c *fakeConn) EventLoop() gnet.EventLoop { return c.el }
func (c *fakeConn) OutboundBuffered() int     { return c.outbound }

// A fakeEventLoop is a gnet.EventLoop of which only the address matters. Tests of the registry and
// benchmarks use it.
type fakeEventLoop struct {
	gnet.EventLoop
	_ int // not of size zero: each value needs its own address
}

func TestRegistryFindsAnyNumberOfLoops(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 16, 192, 193, 600} {
		var loops []*loop
		for range n {
			loops = append(loops, &loop{el: &fakeEventLoop{}})
		}
		g := newRegistry(loops)
		for _, l := range loops {
			require.Same(t, l, g.find(l.el))
		}
		require.Nil(t, g.find(&fakeEventLoop{}), "an unknown event loop, of %d", n)
	}
}
