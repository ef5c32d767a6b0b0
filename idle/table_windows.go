package idle

import (
	"reflect"

	"github.com/panjf2000/gnet/v2"
)

// maxWatched is how many connections a loop can watch.
const maxWatched = 1 << 30

// A table finds the row of a connection. Windows has no dense descriptors, and gnet needs two calls and an allocation to
// tell the handle, so the key is the connection itself.
type table struct {
	rows map[gnet.Conn]*entry
}

type entry struct {
	row
	id uint32
}

// descriptor returns nothing of use: gnet has to ask the system for it.
func descriptor(gnet.Conn) uint { return 0 }

// nobody is the row of no connection.
var nobody row

// atHome returns the row of no connection: the map has to be asked.
func (t *table) atHome(uint) *row { return &nobody }

// find returns the row of c and the id of its state. The row is nil if c is not in the table: it was closed, is a
// datagram or was never opened here.
func (t *table) find(c gnet.Conn) (r *row, id uint32) {
	if !reflect.TypeOf(c).Comparable() {
		return nil, 0
	}
	if e := t.rows[c]; e != nil {
		return &e.row, e.id
	}
	return nil, 0
}

// findDescriptor is find: wrappers that are no pointers are equal if what they wrap is.
func (t *table) findDescriptor(c gnet.Conn) (r *row, id uint32) { return t.find(c) }

// insert adds a row for c. No other can be replaced, since no two connections alive are the same.
func (t *table) insert(c gnet.Conn, id, heard uint32) (old uint32, replaced bool) {
	if t.rows == nil {
		t.rows = make(map[gnet.Conn]*entry)
	}
	t.rows[c] = &entry{row{heard: heard, mark: markOf(c) | fresh}, id}
	return 0, false
}

// look calls do for the rows, all of them.
func (t *table) look(_, _ int, do func(id uint32, r row)) (next int) {
	for _, e := range t.rows {
		do(e.id, e.row)
	}
	return 0
}

// remove takes the row of c out, if there is one.
func (t *table) remove(c gnet.Conn) {
	if e := t.rows[c]; e != nil {
		e.row = row{}
		delete(t.rows, c)
	}
}
