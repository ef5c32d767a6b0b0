//go:build unix

package conntable

import (
	"math/bits"

	"github.com/idlewheel/idlewheel/internal/mono"
)

// ByDescriptor says that Key.FD is used.
const ByDescriptor = true

const (
	pieceBits    = 10
	pieceFDs     = 1 << pieceBits // descriptors of one piece
	firstRecords = 1 << 3         // records that a piece begins with; power of two
)

// Max is how many connections a Table can hold: as many as there are numbers beside the low bits of
// a descriptor.
const Max = 1 << (32 - pieceBits)

// A Table finds the Record of a connection by its descriptor. Descriptors are small integers that
// the kernel gives out densely. There is one Table per event loop, so that loops share nothing. The
// zero Table is empty. Not safe for concurrent use; the goroutine of its event loop owns it.
//
// The descriptors of a process are spread over its loops: with many loops each has few of a range.
// So a piece of the table has a power of two of records, at least a third more than it holds, and
// is searched from a place that the descriptor hashes to. If a piece has as many records as
// descriptors, each descriptor has a place of its own. A connection costs 16 to 32 bytes for any
// number of loops, and 12 bytes with one.
//
// Records move when others are inserted or removed.
type Table struct {
	pieces []piece
}

type piece struct {
	records []Record // nil until the first is inserted
	shift   uint8    // len(records) is pieceFDs >> shift
	n       uint16   // records in use
	refs    []uint32 // for each record the number of the connection and the low bits of its descriptor
}

func newRef(id uint32, fd uint) uint32 { return id<<pieceBits | uint32(fd%pieceFDs) }
func refID(ref uint32) uint32          { return ref >> pieceBits }
func refFD(ref uint32) uint            { return uint(ref % pieceFDs) }

// home returns the place at which the search for a descriptor begins. The factor is odd, so that
// without a shift each descriptor has a home of its own, and near 1024 divided by the golden ratio,
// so that with a shift they are spread (Fibonacci hashing).
func (p *piece) home(fd uint) uint { return fd * 633 % pieceFDs >> (p.shift & 31) }

// AtHome returns the Record at the home of a descriptor, which nearly always is that of the
// descriptor; Record.Is tells. It is small, to be inlined into the path of a message.
func (t *Table) AtHome(fd uint) *Record {
	if i := fd / pieceFDs; i < uint(len(t.pieces)) {
		if p := &t.pieces[i]; p.home(fd) < uint(len(p.records)) {
			return &p.records[p.home(fd)]
		}
	}
	return &absent
}

// search returns the piece of a descriptor and the index of its record, or -1.
func (t *Table) search(fd uint) (*piece, int) {
	if fd/pieceFDs >= uint(len(t.pieces)) {
		return nil, -1
	}
	p := &t.pieces[fd/pieceFDs]
	mask := len(p.records) - 1
	for at := int(p.home(fd)); at <= mask && p.records[at].Tag != 0; at = (at + 1) & mask {
		if refFD(p.refs[at]) == fd%pieceFDs {
			return p, at
		}
		if p.shift == 0 { // no other descriptor has this home, and all records may be in use
			break
		}
	}
	return p, -1
}

// Find returns the Record of a connection and its number. The Record is nil if the connection is
// not in the table. It is valid until the next Insert or Remove.
func (t *Table) Find(k Key) (r *Record, id uint32) {
	if r, id = t.FindDescriptor(k); r == nil || !r.Is(TagOf(k.Addr)) {
		return nil, 0
	}
	return r, id
}

// FindDescriptor is Find for any connection with the descriptor of k.
func (t *Table) FindDescriptor(k Key) (r *Record, id uint32) {
	p, at := t.search(k.FD)
	if at < 0 {
		return nil, 0
	}
	return &p.records[at], refID(p.refs[at])
}

// Insert adds a Record with the flag Fresh for a connection, with a number below Max. If the table
// has a connection with the same descriptor, one that was never removed, that connection is
// replaced, and its number is returned.
func (t *Table) Insert(k Key, id uint32, heard mono.ShortStamp) (old uint32, replaced bool) {
	for k.FD/pieceFDs >= uint(len(t.pieces)) {
		t.pieces = append(t.pieces, piece{})
	}
	p, at := t.search(k.FD)
	r, ref := Record{Heard: heard, Tag: TagOf(k.Addr) | Fresh}, newRef(id, k.FD)
	if at >= 0 {
		old = refID(p.refs[at])
		p.records[at], p.refs[at] = r, ref
		return old, true
	}
	if int(p.n)*4 >= len(p.records)*3 && len(p.records) < pieceFDs {
		p.resize(max(2*len(p.records), firstRecords))
	}
	p.n++
	p.put(r, ref)
	return 0, false
}

func (p *piece) resize(records int) {
	oldRecords, oldRefs := p.records, p.refs
	p.records, p.refs = make([]Record, records), make([]uint32, records)
	p.shift = uint8(bits.TrailingZeros(pieceFDs / uint(records)))
	for i, r := range oldRecords {
		if r.Tag != 0 {
			p.put(r, oldRefs[i])
		}
	}
}

// put stores a record for a descriptor without one. There is room.
func (p *piece) put(r Record, ref uint32) {
	at := int(p.home(refFD(ref)))
	for p.records[at].Tag != 0 {
		at = (at + 1) & (len(p.records) - 1)
	}
	p.records[at], p.refs[at] = r, ref
}

// Scan calls do for the records of the pieces from one on, in a circle, until it has passed about n
// records or all. It returns the piece at which the next Scan goes on.
func (t *Table) Scan(from, n int, do func(id uint32, r Record)) (next int) {
	for range t.pieces {
		if n <= 0 {
			break
		}
		p := &t.pieces[from%len(t.pieces)]
		p.scan(do)
		n -= len(p.records)
		from = (from + 1) % len(t.pieces)
	}
	return from
}

// ScanPart is Scan up to the last piece. It returns 0 after that.
func (t *Table) ScanPart(from, n int, do func(id uint32, r Record)) (next int) {
	for ; from < len(t.pieces); from++ {
		if n <= 0 {
			return from
		}
		p := &t.pieces[from]
		p.scan(do)
		n -= len(p.records)
	}
	return 0
}

func (p *piece) scan(do func(id uint32, r Record)) {
	for i, r := range p.records {
		if r.Tag != 0 {
			do(refID(p.refs[i]), r)
		}
	}
}

// Remove takes the Record of a connection out, if there is one. Records behind it move up, so that
// each can be found from its home.
func (t *Table) Remove(k Key) {
	p, at := t.search(k.FD)
	if at < 0 || !p.records[at].Is(TagOf(k.Addr)) {
		return
	}
	p.records[at] = Record{}
	p.n--
	if p.shift == 0 {
		return // all are at home
	}
	mask := len(p.records) - 1
	for next := (at + 1) & mask; p.records[next].Tag != 0; next = (next + 1) & mask {
		// The record at next may fill the gap if its home is not between the two.
		if home := int(p.home(refFD(p.refs[next]))); (next-home)&mask >= (next-at)&mask {
			p.records[at], p.refs[at] = p.records[next], p.refs[next]
			p.records[next] = Record{}
			at = next
		}
	}
}
