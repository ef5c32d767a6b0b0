package idle

import (
	"math/bits"

	"github.com/panjf2000/gnet/v2"
)

// A registry finds the loop of a connection. gnet has no list of its event loops, so each is added when its first
// connection opens. A registry is immutable: a change makes another. Open addressing keeps a look-up at one or two cache
// lines for any number of loops.
type registry struct {
	loops []*loop
	cells []cell
	shift uint
}

type cell struct {
	el   uintptr // identity of the event loop, 0 if the cell is empty
	loop *loop
}

func newRegistry(loops []*loop) *registry {
	size := max(1, bits.Len(uint(2*len(loops)))) // at least half of the cells stay empty
	g := &registry{loops: loops, cells: make([]cell, 1<<size), shift: uint(64 - size)}
	for _, l := range loops {
		id := loopIdentity(l.el)
		i := g.first(id)
		for g.cells[i].el != 0 {
			i = g.next(i)
		}
		g.cells[i] = cell{id, l}
	}
	return g
}

// first returns the cell where an event loop is looked for first: Fibonacci hashing.
func (g *registry) first(id uintptr) int {
	return int(uint64(id) * 0x9E3779B97F4A7C15 >> (g.shift & 63))
}

func (g *registry) next(i int) int { return (i + 1) & (len(g.cells) - 1) }

// find returns the loop for an event loop, nil if none of its connections was opened here.
func (g *registry) find(el gnet.EventLoop) *loop {
	id := loopIdentity(el)
	for i := g.first(id); ; i = g.next(i) {
		cell := &g.cells[i]
		if cell.el == id {
			return cell.loop
		}
		if cell.el == 0 {
			return nil
		}
	}
}
