package idle

import "github.com/panjf2000/gnet/v2"

// A table finds the row of a connection. Windows has no dense descriptors, and gnet needs two calls and an allocation to
// tell the handle, so the key is the connection itself.
type table struct {
	rows map[gnet.Conn]*row
}

// descriptor returns nothing of use: gnet has to ask the system for it.
func descriptor(gnet.Conn) uint { return 0 }

// nobody is the row of no connection.
var nobody row

// atHome returns the row of no connection: the map has to be asked.
func (t *table) atHome(uint) *row { return &nobody }

// find returns the row of c, or nil if c is not in the table: it was closed, is a datagram or was never opened here.
func (t *table) find(c gnet.Conn) *row { return t.rows[c] }

// insert adds a row for c. No other can be replaced, since no two connections alive are the same.
func (t *table) insert(c gnet.Conn, id, heard uint32) (replaced row) {
	if t.rows == nil {
		t.rows = make(map[gnet.Conn]*row)
	}
	t.rows[c] = &row{conn: identity(c), heard: heard, tag: newTag(id, 0)}
	return row{}
}

// remove takes the row of c out, if there is one.
func (t *table) remove(c gnet.Conn) {
	if r := t.rows[c]; r != nil {
		*r = row{}
		delete(t.rows, c)
	}
}
