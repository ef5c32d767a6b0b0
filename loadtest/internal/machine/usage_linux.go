package machine

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// userTick is the unit of CPU time in /proc. USER_HZ is 100 on every architecture that Go supports.
const userTick = 10 * time.Millisecond

// ProcessUsage returns the current memory of a process, and the CPU time of all its threads,
// without its children. It is zero if the process does not exist. A zombie has no memory.
func ProcessUsage(pid int) result.Usage {
	dir := strconv.Itoa(pid)
	return result.Usage{
		RSS:       proc.number(dir+"/status", "VmRSS:", 0).n << 10,
		Anonymous: proc.number(dir+"/status", "RssAnon:", 0).n << 10,
		CPU:       cpuTime(proc.text(dir + "/stat")),
	}
}

// cpuTime returns the CPU time in the text of /proc/<pid>/stat, fields 14 and 15. Field 2 is the
// process name in parentheses. It may contain any character, so the last closing parenthesis ends
// it.
func cpuTime(stat string) time.Duration {
	const first, user, system = 3, 14, 15 // field numbers of proc_pid_stat(5)
	rest := stat[strings.LastIndexByte(stat, ')')+1:]
	return time.Duration(field(rest, user-first).n+field(rest, system-first).n) * userTick
}

// KernelMemory returns the kernel memory of sockets in bytes: the slabs, which hold sockets, files,
// inodes and dentries, and the TCP buffers. It is 0 if it is not known: some containers hide it.
//
// It covers the whole machine: both ends of a connection if both are here, and every other use of
// slabs, such as the dentries of files. Only the difference of two readings tells the cost of
// connections, and only if the machine does nothing else. Heads of buffers count twice while data
// waits in them. Page tables and vmalloc memory, such as the descriptor table of a large process,
// are not included.
func KernelMemory() uint64 {
	slab, pages := proc.number("meminfo", "Slab:", 0), proc.number("net/sockstat", "TCP:", 9)
	if !slab.known || !pages.known {
		return 0
	}
	return slab.n<<10 + pages.n*uint64(os.Getpagesize())
}
