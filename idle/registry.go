package idle

import (
	"unsafe"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/conntable"
)

const (
	cellBits = 8
	cells    = 1 << cellBits
)

// A registry finds the loop of a connection. gnet has no list of its event loops, so each loop is
// added when its first connection opens. Immutable: a change makes another registry.
//
// It is a hash table with open addressing. Each message needs a lookup, so the size is fixed: a
// lookup is a multiplication and a load. gnet has 256 event loops at most. Loops without a cell are
// searched one by one.
type registry struct {
	loops []*loop
	cells [cells]cell
	rest  []*loop
}

type cell struct {
	el   uintptr // identity of the event loop, 0 if the cell is empty
	loop *loop
}

func newRegistry(loops []*loop) *registry {
	g := &registry{loops: loops}
	for n, l := range loops {
		if n >= cells*3/4 { // the free cells keep a search short
			g.rest = loops[n:]
			break
		}
		id := loopIdentity(l.el)
		i := home(id)
		for g.cells[i].el != 0 {
			i = (i + 1) % cells
		}
		g.cells[i] = cell{id, l}
	}
	return g
}

// home returns the first cell of a search for an event loop, by Fibonacci hashing.
func home(id uintptr) uint {
	return uint(uint64(id) * 0x9E3779B97F4A7C15 >> (64 - cellBits))
}

// find returns the loop of an event loop, or nil if it has none.
func (g *registry) find(el gnet.EventLoop) *loop {
	id := loopIdentity(el)
	if c := &g.cells[home(id)]; c.el == id { // the usual case
		return c.loop
	}
	return g.search(id)
}

func (g *registry) search(id uintptr) *loop {
	for i := home(id); g.cells[i].el != 0; i = (i + 1) % cells {
		if g.cells[i].el == id {
			return g.cells[i].loop
		}
	}
	for _, l := range g.rest {
		if loopIdentity(l.el) == id {
			return l
		}
	}
	return nil
}

// loopIdentity returns the address of an event loop. The registry keeps the event loop alive.
func loopIdentity(el gnet.EventLoop) uintptr {
	return (*[2]uintptr)(unsafe.Pointer(&el))[1]
}

// address returns the address of a connection, or of its copy in the interface value.
func address(c gnet.Conn) uintptr { return (*[2]uintptr)(unsafe.Pointer(&c))[1] }

func key(c gnet.Conn) conntable.Key { return conntable.Key{FD: descriptor(c), Addr: address(c)} }

func tagOf(c gnet.Conn) conntable.Tag { return conntable.TagOf(address(c)) }

// descriptor returns the descriptor of a connection, or 0 on systems where the table does not use
// it.
func descriptor(c gnet.Conn) uint {
	if !conntable.ByDescriptor {
		return 0
	}
	return uint(c.Fd())
}
