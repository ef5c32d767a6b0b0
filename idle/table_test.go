package idle

import (
	"math/rand/v2"
	"testing"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
)

// fakeConn is a connection of gnet in name only.
type fakeConn struct {
	gnet.Conn
	fd       int
	buffered int
	el       gnet.EventLoop
}

func (c *fakeConn) Fd() int                   { return c.fd }
func (c *fakeConn) InboundBuffered() int      { return c.buffered }
func (c *fakeConn) EventLoop() gnet.EventLoop { return c.el }

type fakeEventLoop struct {
	gnet.EventLoop
	_ int // not of size zero, so that each has an address of its own
}

func TestTableFindsByDescriptorAndIdentity(t *testing.T) {
	var tab table
	model := map[gnet.Conn]uint32{}
	byFD := map[int]gnet.Conn{}
	var closed []gnet.Conn
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 100_000 {
		if fd := rng.IntN(3000); byFD[fd] == nil {
			c := &fakeConn{fd: fd}
			r := tab.insert(c)
			require.Zero(t, r.conn)
			*r = row{conn: identity(c), ref: uint32(i)}
			model[c], byFD[fd] = uint32(i), c
		} else {
			c := byFD[fd]
			r := tab.find(c)
			require.NotNil(t, r)
			require.Equal(t, model[c], r.id())
			tab.remove(c, r)
			delete(model, c)
			delete(byFD, fd)
			closed = append(closed, c)
		}
		if len(closed) > 0 {
			require.Nil(t, tab.find(closed[rng.IntN(len(closed))]), "a closed connection never finds that of its successor")
		}
	}
	require.Nil(t, tab.find(&fakeConn{fd: -1}))
	require.Nil(t, tab.find(&fakeConn{fd: 1 << 30}))
}

func TestRegistryFindsAnyNumberOfLoops(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 16, 257} {
		var loops []*loop
		for range n {
			loops = append(loops, &loop{el: &fakeEventLoop{}})
		}
		g := newRegistry(loops)
		for _, l := range loops {
			require.Same(t, l, g.find(&fakeConn{el: l.el}))
		}
		require.Nil(t, g.find(&fakeConn{el: &fakeEventLoop{}}), "an event loop that is not there, of %d", n)
	}
}
