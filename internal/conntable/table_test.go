package conntable

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A conn stands for a connection. The address is a number of its own, because a value on the stack
// moves.
type conn struct {
	fd   int
	addr uintptr
}

var addresses uintptr

func newConn(fd int) *conn {
	addresses += 64
	return &conn{fd, addresses}
}

func (c *conn) key() Key { return Key{uint(c.fd), c.addr} }

func TestTableFindsByDescriptorAndIdentity(t *testing.T) {
	// Of the descriptors, one in so many belongs to this table; the rest are those of other loops.
	for _, loops := range []int{1, 2, 3, 8, 64} {
		t.Run(fmt.Sprintf("loops=%d", loops), func(t *testing.T) {
			var tab Table
			byFD := map[int]*conn{}
			ids := map[*conn]uint32{}
			var closed []*conn
			rng := rand.New(rand.NewPCG(1, uint64(loops)))
			for i := range uint32(50_000) {
				fd := rng.IntN(3000) * loops
				if c := byFD[fd]; c == nil {
					c = newConn(fd)
					_, replaced := tab.Insert(c.key(), i, 7)
					require.False(t, replaced)
					ids[c], byFD[fd] = i, c
				} else {
					tab.Remove(c.key())
					delete(byFD, fd)
					closed = append(closed, c)
				}
				for range 3 {
					fd := rng.IntN(3000) * loops
					if c := byFD[fd]; c != nil {
						r, id := tab.Find(c.key())
						require.NotNil(t, r)
						require.Equal(t, ids[c], id)
						require.EqualValues(t, 7, r.Heard)
						if home := tab.AtHome(uint(fd)); home.Is(TagOf(c.key().Addr)) {
							require.Same(t, r, home)
						}
					} else {
						requireAbsent(t, &tab, newConn(fd))
					}
				}
				if len(closed) > 0 {
					requireAbsent(t, &tab, closed[rng.IntN(len(closed))])
				}
			}
			requireAbsent(t, &tab, newConn(-1))
			requireAbsent(t, &tab, newConn(1<<30))
			tab.Remove(newConn(-1).key())
			for _, c := range byFD {
				_, id := tab.Find(c.key())
				require.Equal(t, ids[c], id, "none is lost")
				tab.Remove(c.key())
				requireAbsent(t, &tab, c)
			}
		})
	}
}

func TestTableReplacesAConnectionThatWasNeverClosed(t *testing.T) {
	var tab Table
	old, c := newConn(9), newConn(9)
	tab.Insert(old.key(), 1, 0)
	id, replaced := tab.Insert(c.key(), 2, 0)
	require.True(t, replaced)
	require.EqualValues(t, 1, id)
	requireAbsent(t, &tab, old)
	tab.Remove(old.key())
	r, id := tab.Find(c.key())
	require.NotNil(t, r, "its close does not hit the successor")
	require.EqualValues(t, 2, id)
}

func requireAbsent(t *testing.T, tab *Table, c *conn) {
	t.Helper()
	r, _ := tab.Find(c.key())
	require.Nil(t, r, "a closed connection never finds its successor")
}

// TestNeighboursHaveTagsOfTheirOwn has the smallest connections, of two words, side by side.
func TestNeighboursHaveTagsOfTheirOwn(t *testing.T) {
	const size = 2 * unsafe.Sizeof(uintptr(0))
	for addr := 1000 * size; addr < 1100*size; addr += size {
		require.NotEqual(t, TagOf(addr), TagOf(addr+size))
		require.NotZero(t, TagOf(addr))
	}
}
