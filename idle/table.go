//go:build unix

package idle

import "github.com/panjf2000/gnet/v2"

// pieceRows is how many rows of a table are allocated at a time: one page.
const pieceRows = 256 // power of two

// A table finds the row of a connection by its descriptor. Descriptors are small integers that the kernel gives out
// densely, and a number is used again only after OnClose has run. There is one table per loop, so that nothing of it is
// shared; rows never move.
type table struct {
	pieces []*[pieceRows]row
}

// find returns the row of c, or nil if c is not in the table: it was closed, is a datagram or was never opened here.
func (t *table) find(c gnet.Conn) *row {
	fd := uint(c.Fd())
	if i := fd / pieceRows; i < uint(len(t.pieces)) && t.pieces[i] != nil {
		if r := &t.pieces[i][fd%pieceRows]; r.conn == identity(c) {
			return r
		}
	}
	return nil
}

// insert returns the row for c. It may still hold a connection with the same descriptor that was never closed.
func (t *table) insert(c gnet.Conn) *row {
	fd := uint(c.Fd())
	i := fd / pieceRows
	for i >= uint(len(t.pieces)) {
		t.pieces = append(t.pieces, nil)
	}
	if t.pieces[i] == nil {
		t.pieces[i] = new([pieceRows]row)
	}
	return &t.pieces[i][fd%pieceRows]
}

func (t *table) remove(_ gnet.Conn, r *row) { *r = row{} }
