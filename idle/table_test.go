package idle

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
)

// fakeConn is a gnet.Conn with the few methods that a table needs.
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

type fakeEventLoop struct {
	gnet.EventLoop
	_ int // not of size zero: each value needs its own address
}

func TestTableFindsByDescriptorAndIdentity(t *testing.T) {
	// One in so many descriptors belongs to this table, the others to other loops.
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
					_, replaced := tab.insert(c, i, 7)
					require.False(t, replaced)
					ids[c], byFD[fd] = i, c
				} else {
					tab.remove(c)
					delete(byFD, fd)
					closed = append(closed, c)
				}
				for range 3 {
					fd := rng.IntN(3000) * loops
					if c := byFD[fd]; c != nil {
						r, id := tab.find(c)
						require.NotNil(t, r)
						require.Equal(t, ids[c], id)
						require.EqualValues(t, 7, r.heard)
						if home := tab.atHome(uint(fd)); home.is(markOf(c)) {
							require.Same(t, r, home)
						}
					} else {
						requireAbsent(t, &tab, &fakeConn{fd: fd})
					}
				}
				if len(closed) > 0 {
					requireAbsent(t, &tab, closed[rng.IntN(len(closed))])
				}
			}
			requireAbsent(t, &tab, &fakeConn{fd: -1})
			requireAbsent(t, &tab, &fakeConn{fd: 1 << 30})
			tab.remove(&fakeConn{fd: -1})
			for _, c := range byFD {
				_, id := tab.find(c)
				require.Equal(t, ids[c], id, "no connection is lost")
				tab.remove(c)
				requireAbsent(t, &tab, c)
			}
		})
	}
}

func TestTableReplacesAConnectionThatWasNeverClosed(t *testing.T) {
	var tab table
	old, c := &fakeConn{fd: 9}, &fakeConn{fd: 9}
	tab.insert(old, 1, 0)
	id, replaced := tab.insert(c, 2, 0)
	require.True(t, replaced)
	require.EqualValues(t, 1, id)
	requireAbsent(t, &tab, old)
	tab.remove(old)
	r, id := tab.find(c)
	require.NotNil(t, r, "a late close does not hit the next connection")
	require.EqualValues(t, 2, id)
}

func requireAbsent(t *testing.T, tab *table, c gnet.Conn) {
	t.Helper()
	r, _ := tab.find(c)
	require.Nil(t, r, "a closed connection never finds the next one")
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
