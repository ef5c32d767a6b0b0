//go:build unix

package idle

import (
	"math/bits"

	"github.com/panjf2000/gnet/v2"
)

const (
	pieceFDs  = 1 << tagFDBits // descriptors of one piece, as many as a tag tells apart
	firstRows = 1 << 3         // rows that a piece begins with; a power of two
)

// A table finds the row of a connection by its descriptor. Descriptors are small integers that the kernel gives out
// densely, and a number is used again only after OnClose has run. There is one table per loop, so that nothing of it is
// shared.
//
// The descriptors of a process are spread over its loops: with many loops each has few of a range. So a piece of the
// table has a power of two of rows, at least a third more than it holds, and is searched from a place that the
// descriptor hashes to; with as many rows as descriptors that place is its own and nobody else's. A row costs 21 to 43
// bytes in this way for any number of loops, 16 with one.
//
// Rows move when others are inserted or removed.
type table struct {
	pieces []piece
}

type piece struct {
	rows  []row  // nil until the first is inserted
	n     uint16 // rows in use
	shift uint8  // len(rows) is pieceFDs >> shift
}

// home returns where the row of a descriptor is looked for first. The factor is odd, so that without a shift no two
// descriptors share a home, and near 1024 divided by the golden ratio, so that with one they are spread (Fibonacci
// hashing).
func (p *piece) home(fd uint) uint { return fd * 633 % pieceFDs >> (p.shift & 31) }

// search returns the index of the row of a descriptor, or -1.
func (p *piece) search(fd uint) int {
	mask := len(p.rows) - 1
	for at := int(p.home(fd)); at <= mask; at = (at + 1) & mask { // not at all without rows
		r := &p.rows[at]
		if r.conn == 0 {
			break
		}
		if r.tag.fd() == fd {
			return at
		}
		if p.shift == 0 { // nobody else has this home
			break
		}
	}
	return -1
}

// descriptor returns what the table looks c up by.
func descriptor(c gnet.Conn) uint { return uint(c.Fd()) }

// nobody is the row of no connection.
var nobody row

// atHome returns the row at the home of a descriptor, whosever it is: nearly always its own. It is small, to be inlined
// into the message path.
func (t *table) atHome(fd uint) *row {
	if i := fd / pieceFDs; i < uint(len(t.pieces)) {
		if p := &t.pieces[i]; p.home(fd) < uint(len(p.rows)) {
			return &p.rows[p.home(fd)]
		}
	}
	return &nobody
}

// find returns the row of c, or nil if c is not in the table: it was closed, is a datagram or was never opened here.
func (t *table) find(c gnet.Conn) *row {
	fd, conn := descriptor(c), identity(c)
	if r := t.atHome(fd); r.conn == conn {
		return r
	}
	if fd/pieceFDs >= uint(len(t.pieces)) {
		return nil
	}
	p := &t.pieces[fd/pieceFDs]
	if at := p.search(fd % pieceFDs); at >= 0 && p.rows[at].conn == conn {
		return &p.rows[at]
	}
	return nil
}

// insert adds a row for c, and returns the one that it replaces: that of a connection with the same descriptor which was
// never closed.
func (t *table) insert(c gnet.Conn, id, heard uint32) (replaced row) {
	fd := descriptor(c)
	for fd/pieceFDs >= uint(len(t.pieces)) {
		t.pieces = append(t.pieces, piece{})
	}
	p := &t.pieces[fd/pieceFDs]
	r := row{conn: identity(c), heard: heard, tag: newTag(id, fd)}
	if at := p.search(fd % pieceFDs); at >= 0 {
		replaced, p.rows[at] = p.rows[at], r
		return replaced
	}
	if int(p.n)*4 >= len(p.rows)*3 && len(p.rows) < pieceFDs {
		p.resize(max(2*len(p.rows), firstRows))
	}
	p.n++
	p.put(r)
	return row{}
}

func (p *piece) resize(rows int) {
	old := p.rows
	p.rows = make([]row, rows)
	p.shift = uint8(bits.TrailingZeros(pieceFDs / uint(rows)))
	for _, r := range old {
		if r.conn != 0 {
			p.put(r)
		}
	}
}

// put stores a row whose descriptor has none. There is room.
func (p *piece) put(r row) {
	at := int(p.home(r.tag.fd()))
	for p.rows[at].conn != 0 {
		at = (at + 1) & (len(p.rows) - 1)
	}
	p.rows[at] = r
}

// remove takes the row of c out, if there is one. Those behind it move up, so that none is cut off from its home.
func (t *table) remove(c gnet.Conn) {
	if t.find(c) == nil {
		return
	}
	fd := descriptor(c)
	p := &t.pieces[fd/pieceFDs]
	at := p.search(fd % pieceFDs)
	p.rows[at] = row{}
	p.n--
	if p.shift == 0 {
		return // all are at home
	}
	mask := len(p.rows) - 1
	for next := (at + 1) & mask; p.rows[next].conn != 0; next = (next + 1) & mask {
		// The row at next may fill the gap if its home is not between the two.
		if home := int(p.home(p.rows[next].tag.fd())); (next-home)&mask >= (next-at)&mask {
			p.rows[at], p.rows[next] = p.rows[next], row{}
			at = next
		}
	}
}
