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

// A mark tells whose row it is, by 30 bits of the address of the connection: two of them are taken for each other only
// if they lie a multiple of 16 GiB apart and their descriptors lead to the same row. What follows then is a heartbeat
// that counts for the other; before a connection is closed the kernel is asked, and all of its identity is compared. The
// top bit says that the handler has left bytes in gnet's buffer.
type mark uint32

const leftover mark = 1 << 31

// markOf returns the mark of a connection, without the bit for leftover bytes. It is never 0.
func markOf(c gnet.Conn) mark {
	address := (*[2]uintptr)(unsafe.Pointer(&c))[1] // compared, never followed
	return mark(address>>3)&^leftover | 1
}

// is reports whether the row is that of the connection with the given mark.
func (r *row) is(m mark) bool { return r.mark&^leftover == m }

// loopIdentity returns the address of an event loop, which the loop in the registry keeps alive.
func loopIdentity(el gnet.EventLoop) uintptr {
	return (*[2]uintptr)(unsafe.Pointer(&el))[1]
}
