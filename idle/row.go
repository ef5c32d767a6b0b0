package idle

import (
	"unsafe"

	"github.com/panjf2000/gnet/v2"
)

// A row is all that one message touches of a connection: 8 bytes, so that those of a million connections fit a cache.
// Owned by the loop goroutine.
type row struct {
	heard uint32 // stamp of the last read, the low 32 bits
	mark  mark   // 0 if the row is free
}

// A mark tells whose row it is, by 28 bits of the address of the connection: two of them are taken for each other only
// if they lie a multiple of 4 GiB apart and their descriptors lead to the same row. What follows then is a heartbeat
// that counts for the other; before a connection is closed the kernel is asked, and all of its identity is compared. The
// three top bits are flags.
type mark uint32

const (
	leftover mark = 1 << 31 // the handler has left bytes in gnet's buffer
	fresh    mark = 1 << 30 // nothing was heard yet
	ready    mark = 1 << 29 // MarkReady

	special   = leftover | fresh // what the next message has to look at
	markFlags = special | ready
)

// markOf returns the mark of a connection, without flags. It is never 0.
func markOf(c gnet.Conn) mark {
	return mark(uintptr(address(c))>>3)&^markFlags | 1
}

// address returns the address of a connection, or of the copy that the interface value holds.
func address(c gnet.Conn) unsafe.Pointer { return (*[2]unsafe.Pointer)(unsafe.Pointer(&c))[1] }

// is reports whether the row is that of the connection with the given mark.
func (r *row) is(m mark) bool { return r.mark&^markFlags == m }

// loopIdentity returns the address of an event loop, which the loop in the registry keeps alive.
func loopIdentity(el gnet.EventLoop) uintptr {
	return (*[2]uintptr)(unsafe.Pointer(&el))[1]
}
