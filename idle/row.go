package idle

import (
	"unsafe"

	"github.com/panjf2000/gnet/v2"
)

// A row is all that one message touches of a connection: 16 bytes without pointers. Owned by the loop goroutine.
type row struct {
	conn  uintptr // identity of the connection, 0 if none
	heard uint32  // stamp of the last read, the low 32 bits
	tag   tag
}

// A tag packs the id of the state, whether the handler left bytes in gnet's buffer (one bit), and the low bits of the
// descriptor.
type tag uint32

const (
	tagFDBits     = 10
	leftover  tag = 1 << tagFDBits
	tagIDAt       = tagFDBits + 1
)

// maxWatched is how many connections a loop can watch.
const maxWatched = 1 << (32 - tagIDAt)

func newTag(id uint32, fd uint) tag { return tag(id<<tagIDAt) | tag(fd&(1<<tagFDBits-1)) }

func (t tag) id() uint32 { return uint32(t >> tagIDAt) }
func (t tag) fd() uint   { return uint(t & (1<<tagFDBits - 1)) }

// identity returns the address of a connection. It is compared, never followed. The states keep the connections alive,
// so that an address in a row means one connection only, and comparing it costs a third of comparing two interfaces.
func identity(c gnet.Conn) uintptr {
	return uintptr((*[2]unsafe.Pointer)(unsafe.Pointer(&c))[1])
}

// loopIdentity returns the address of an event loop, which the loop in the registry keeps alive.
func loopIdentity(el gnet.EventLoop) uintptr {
	return uintptr((*[2]unsafe.Pointer)(unsafe.Pointer(&el))[1])
}
