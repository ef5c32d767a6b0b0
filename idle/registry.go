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

// A registry finds the loop of a connection. gnet has no list of its event loops, so each is added when its first
// connection opens. A registry is immutable: a change makes another.
//
// It is a hash table with open addressing, of a fixed size so that a look-up, which each message needs, is a
// multiplication and a load. gnet has 256 loops at most; those for which no cell is left are searched one by one.
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
		if n >= cells*3/4 { // so many stay empty that a search ends soon
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

// home returns the cell where an event loop is looked for first: Fibonacci hashing.
func home(id uintptr) uint {
	return uint(uint64(id) * 0x9E3779B97F4A7C15 >> (64 - cellBits))
}

// find returns the loop for an event loop, nil if none of its connections was opened here.
func (g *registry) find(el gnet.EventLoop) *loop {
	id := loopIdentity(el)
	if c := &g.cells[home(id)]; c.el == id { // nearly always
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

// loopIdentity returns the address of an event loop, which the loop in the registry keeps alive.
func loopIdentity(el gnet.EventLoop) uintptr {
	return (*[2]uintptr)(unsafe.Pointer(&el))[1]
}

// address returns the address of a connection, or of the copy that the interface value holds.
func address(c gnet.Conn) uintptr { return (*[2]uintptr)(unsafe.Pointer(&c))[1] }

// key returns what the table finds a connection by.
func key(c gnet.Conn) conntable.Key { return conntable.Key{FD: descriptor(c), Addr: address(c)} }

func tagOf(c gnet.Conn) conntable.Tag { return conntable.TagOf(address(c)) }

// descriptor returns the descriptor of a connection, 0 where the table does not use it.
func descriptor(c gnet.Conn) uint {
	if !conntable.ByDescriptor {
		return 0
	}
	return uint(c.Fd())
}
