package idle

import "github.com/panjf2000/gnet/v2"

// A table finds the row of a connection. Windows has no dense descriptors, and gnet needs two calls and an allocation to
// tell the handle, so the key is the connection itself.
type table struct {
	rows map[gnet.Conn]*row
}

// find returns the row of c, or nil if c is not in the table: it was closed, is a datagram or was never opened here.
func (t *table) find(c gnet.Conn) *row { return t.rows[c] }

// insert returns the row for c.
func (t *table) insert(c gnet.Conn) *row {
	if t.rows == nil {
		t.rows = make(map[gnet.Conn]*row)
	}
	r := new(row)
	t.rows[c] = r
	return r
}

func (t *table) remove(c gnet.Conn, r *row) {
	delete(t.rows, c)
	*r = row{}
}
