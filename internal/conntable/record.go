// Package conntable has the tables in which a front end finds what it knows of a connection: a
// [Table] for each event loop, and an [AddressTable] for connections without events.
//
// Each message needs one lookup in a Table. So a Record is eight bytes, and those of a million
// connections fit a cache. The rest of what is known of a connection is stored elsewhere, by the
// number that the tables return.
package conntable

import "github.com/idlewheel/idlewheel/internal/mono"

// A Key identifies a connection while it is open.
type Key struct {
	FD   uint    // its descriptor; not used on Windows
	Addr uintptr // the address of its value, which nothing else has while the connection is open
}

// A Record is what one message touches of a connection. The owner of the Table owns it.
type Record struct {
	Heard mono.ShortStamp // of the last read
	Tag   Tag             // 0 if the Record is free
}

// A Tag identifies the connection of a Record by 28 bits of its address: two connections are taken
// for each other only if their addresses lie a multiple of 2 GiB apart and their descriptors lead
// to the same Record. The consequence is a heartbeat that counts for the other connection; callers
// compare the whole address before they close a connection. The three top bits are flags.
type Tag uint32

// The flags of a Tag.
const (
	Leftover Tag = 1 << 31 // the handler has left bytes in the buffer of the event loop
	Fresh    Tag = 1 << 30 // no byte was heard yet
	Ready    Tag = 1 << 29 // the handshake is over

	flags = Leftover | Fresh | Ready
)

// tagShift makes the last bit of an address that tells two values apart the second one of a Tag: a
// connection has two words at least, 8 bytes where a word has 32 bits.
const tagShift = 2 + ^uintptr(0)>>63

// TagOf returns the Tag of the connection with an address, without flags. It is never 0.
func TagOf(addr uintptr) Tag { return Tag(addr>>tagShift)&^flags | 1 }

// Is reports whether the Record is that of the connection with a Tag without flags.
func (r *Record) Is(t Tag) bool { return r.Tag&^flags == t }

// Has reports whether one of the flags is set.
func (r *Record) Has(flags Tag) bool { return r.Tag&flags != 0 }

// Set sets or clears a flag.
func (r *Record) Set(flag Tag, on bool) {
	r.Tag &^= flag
	if on {
		r.Tag |= flag
	}
}

// absent is the Record of no connection.
var absent Record
