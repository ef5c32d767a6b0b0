package idle

import (
	"unsafe"

	"github.com/panjf2000/gnet/v2"
)

// A row is all that one message touches of a connection: 16 bytes without pointers. Owned by the loop goroutine.
type row struct {
	conn  uintptr // identity of the connection, 0 if none
	heard uint32  // tick of the last read, the low 32 bits
	ref   uint32  // id of the state, and whether it says that bytes were left over
}

// leftover is set in row.ref when the handler left bytes in gnet's buffer.
const leftover = 1 << 31

func (r *row) id() uint32 { return r.ref &^ leftover }

// identity returns the address of a connection. It is compared, never followed. The states keep the connections alive,
// so that an address in a row means one connection only, and comparing it costs a third of comparing two interfaces.
func identity(c gnet.Conn) uintptr {
	return uintptr((*[2]unsafe.Pointer)(unsafe.Pointer(&c))[1])
}

// loopIdentity returns the address of an event loop, which the loop in the registry keeps alive.
func loopIdentity(el gnet.EventLoop) uintptr {
	return uintptr((*[2]unsafe.Pointer)(unsafe.Pointer(&el))[1])
}
