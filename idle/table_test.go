package idle

import (
	"fmt"
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
	// Of the descriptors, one in so many belongs to this table; the rest are those of other loops.
	for _, loops := range []int{1, 2, 3, 8, 64} {
		t.Run(fmt.Sprintf("loops=%d", loops), func(t *testing.T) {
			var tab table
			byFD := map[int]gnet.Conn{}
			ids := map[gnet.Conn]uint32{}
			var closed []gnet.Conn
			rng := rand.New(rand.NewPCG(1, uint64(loops)))
			for i := range uint32(50_000) {
				fd := rng.IntN(3000) * loops
				if c := byFD[fd]; c == nil {
					c = &fakeConn{fd: fd}
					require.Zero(t, tab.insert(c, i, 7))
					ids[c], byFD[fd] = i, c
				} else {
					tab.remove(c)
					delete(byFD, fd)
					closed = append(closed, c)
				}
				for range 3 {
					fd := rng.IntN(3000) * loops
					if c := byFD[fd]; c != nil {
						require.NotNil(t, tab.find(c))
						require.Equal(t, ids[c], tab.find(c).tag.id())
						require.EqualValues(t, 7, tab.find(c).heard)
					} else {
						require.Nil(t, tab.find(&fakeConn{fd: fd}))
					}
				}
				if len(closed) > 0 {
					gone := closed[rng.IntN(len(closed))]
					require.Nil(t, tab.find(gone), "a closed connection never finds its successor")
				}
			}
			require.Nil(t, tab.find(&fakeConn{fd: -1}))
			require.Nil(t, tab.find(&fakeConn{fd: 1 << 30}))
			tab.remove(&fakeConn{fd: -1})
			for _, c := range byFD {
				require.Equal(t, ids[c], tab.find(c).tag.id(), "none is lost")
				tab.remove(c)
				require.Nil(t, tab.find(c))
			}
		})
	}
}

func TestTableReplacesAConnectionThatWasNeverClosed(t *testing.T) {
	var tab table
	old, c := &fakeConn{fd: 9}, &fakeConn{fd: 9}
	tab.insert(old, 1, 0)
	require.EqualValues(t, 1, tab.insert(c, 2, 0).tag.id())
	require.Nil(t, tab.find(old))
	require.EqualValues(t, 2, tab.find(c).tag.id())
	tab.remove(old)
	require.NotNil(t, tab.find(c), "its close does not hit the successor")
}

func TestRegistryFindsAnyNumberOfLoops(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 16, 257} {
		var loops []*loop
		for range n {
			loops = append(loops, &loop{el: &fakeEventLoop{}})
		}
		g := newRegistry(loops)
		for _, l := range loops {
			require.Same(t, l, g.find(l.el))
		}
		require.Nil(t, g.find(&fakeEventLoop{}), "an event loop that is not there, of %d", n)
	}
}
