//go:build unix

package idle

import (
	"math/bits"

	"github.com/panjf2000/gnet/v2"
)

const (
	pieceBits = 10
	pieceFDs  = 1 << pieceBits // descriptors of one piece
	firstRows = 1 << 3         // rows that a piece begins with; a power of two
)

// maxWatched is how many connections a loop can watch: as many as there are ids beside the low bits of a descriptor.
const maxWatched = 1 << (32 - pieceBits)

// A table finds the row of a connection by its descriptor. Descriptors are small integers that the kernel gives out
// densely, and a number is used again only after OnClose has run. There is one table per loop, so that nothing of it is
// shared.
//
// The descriptors of a process are spread over its loops: with many loops each has few of a range. So a piece of the
// table has a power of two of rows, at least a third more than it holds, and is searched from a place that the
// descriptor hashes to; with as many rows as descriptors that place is its own and nobody else's. A connection costs 16
// to 32 bytes in this way for any number of loops, 12 with one.
//
// Rows move when others are inserted or removed.
type table struct {
	pieces []piece
}

type piece struct {
	rows  []row    // nil until the first is inserted
	shift uint8    // len(rows) is pieceFDs >> shift
	n     uint16   // rows in use
	refs  []uint32 // for each row the id of the state and the low bits of the descriptor
}

func newRef(id uint32, fd uint) uint32 { return id<<pieceBits | uint32(fd%pieceFDs) }
func refID(ref uint32) uint32          { return ref >> pieceBits }
func refFD(ref uint32) uint            { return uint(ref % pieceFDs) }

// home returns where the row of a descriptor is looked for first. The factor is odd, so that without a shift no two
// descriptors share a home, and near 1024 divided by the golden ratio, so that with one they are spread (Fibonacci
// hashing).
func (p *piece) home(fd uint) uint { return fd * 633 % pieceFDs >> (p.shift & 31) }

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

// search returns the piece of a descriptor and the index of its row, or -1.
func (t *table) search(fd uint) (*piece, int) {
	if fd/pieceFDs >= uint(len(t.pieces)) {
		return nil, -1
	}
	p := &t.pieces[fd/pieceFDs]
	mask := len(p.rows) - 1
	for at := int(p.home(fd)); at <= mask && p.rows[at].mark != 0; at = (at + 1) & mask {
		if refFD(p.refs[at]) == fd%pieceFDs {
			return p, at
		}
		if p.shift == 0 { // nobody else has this home, and all may be taken
			break
		}
	}
	return p, -1
}

// find returns the row of c and the id of its state. The row is nil if c is not in the table: it was closed, is a
// datagram or was never opened here.
func (t *table) find(c gnet.Conn) (r *row, id uint32) {
	p, at := t.search(descriptor(c))
	if at < 0 || !p.rows[at].is(markOf(c)) {
		return nil, 0
	}
	return &p.rows[at], refID(p.refs[at])
}

// findDescriptor returns the row of the descriptor of c and the id of its state, whatever connection
// it belongs to.
func (t *table) findDescriptor(c gnet.Conn) (r *row, id uint32) {
	p, at := t.search(descriptor(c))
	if at < 0 {
		return nil, 0
	}
	return &p.rows[at], refID(p.refs[at])
}

// insert adds a row for c. If another connection has the same descriptor, one that was never closed, it is replaced,
// and the id of its state is returned.
func (t *table) insert(c gnet.Conn, id, heard uint32) (old uint32, replaced bool) {
	fd := descriptor(c)
	for fd/pieceFDs >= uint(len(t.pieces)) {
		t.pieces = append(t.pieces, piece{})
	}
	p, at := t.search(fd)
	r, ref := row{heard: heard, mark: markOf(c) | fresh}, newRef(id, fd)
	if at >= 0 {
		old = refID(p.refs[at])
		p.rows[at], p.refs[at] = r, ref
		return old, true
	}
	if int(p.n)*4 >= len(p.rows)*3 && len(p.rows) < pieceFDs {
		p.resize(max(2*len(p.rows), firstRows))
	}
	p.n++
	p.put(r, ref)
	return 0, false
}

func (p *piece) resize(rows int) {
	oldRows, oldRefs := p.rows, p.refs
	p.rows, p.refs = make([]row, rows), make([]uint32, rows)
	p.shift = uint8(bits.TrailingZeros(pieceFDs / uint(rows)))
	for i, r := range oldRows {
		if r.mark != 0 {
			p.put(r, oldRefs[i])
		}
	}
}

// put stores a row whose descriptor has none. There is room.
func (p *piece) put(r row, ref uint32) {
	at := int(p.home(refFD(ref)))
	for p.rows[at].mark != 0 {
		at = (at + 1) & (len(p.rows) - 1)
	}
	p.rows[at], p.refs[at] = r, ref
}

// look calls do for the rows of the pieces from one on, in a circle, until it has passed about as many as given or all. It returns
// where to go on.
func (t *table) look(from, rows int, do func(id uint32, r row)) (next int) {
	for range t.pieces {
		if rows <= 0 {
			break
		}
		p := &t.pieces[from%len(t.pieces)]
		for i, r := range p.rows {
			if r.mark != 0 {
				do(refID(p.refs[i]), r)
			}
		}
		rows -= len(p.rows)
		from = (from + 1) % len(t.pieces)
	}
	return from
}

// remove takes the row of c out, if there is one. Those behind it move up, so that none is cut off from its home.
func (t *table) remove(c gnet.Conn) {
	p, at := t.search(descriptor(c))
	if at < 0 || !p.rows[at].is(markOf(c)) {
		return
	}
	p.rows[at] = row{}
	p.n--
	if p.shift == 0 {
		return // all are at home
	}
	mask := len(p.rows) - 1
	for next := (at + 1) & mask; p.rows[next].mark != 0; next = (next + 1) & mask {
		// The row at next may fill the gap if its home is not between the two.
		if home := int(p.home(refFD(p.refs[next]))); (next-home)&mask >= (next-at)&mask {
			p.rows[at], p.refs[at] = p.rows[next], p.refs[next]
			p.rows[next] = row{}
			at = next
		}
	}
}
