package machine

import (
	"os"

	"github.com/idlewheel/idlewheel/loadtest/internal/proc"
)

// KernelMemory returns the kernel memory of sockets in bytes: the slabs, which hold sockets, files,
// inodes and dentries, and the TCP buffers. It is 0 if it is not known: some containers hide it.
//
// It covers the whole machine: both ends of a connection if both are here, and every other use of
// slabs, such as the dentries of files. Only the difference of two readings tells the cost of
// connections, and only if the machine does nothing else. Heads of buffers count twice while data
// waits in them. Page tables and vmalloc memory, such as the descriptor table of a large process,
// are not included.
func KernelMemory() uint64 {
	slab, pages := proc.System().FieldAfter("meminfo", "Slab:", 0), proc.System().FieldAfter("net/sockstat", "TCP:", 9)
	if !slab.Known || !pages.Known {
		return 0
	}
	return slab.N<<10 + pages.N*uint64(os.Getpagesize())
}
