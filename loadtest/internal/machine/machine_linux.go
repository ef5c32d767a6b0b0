// Package machine reads what this machine is and can hold, and what its processes and its kernel
// use: from /proc, and from the kernel through netlink. For each limit that is too low it names a
// fix, a command for the operator. It changes nothing, except that [Descriptors] raises the soft
// limit of descriptors. Linux only.
//
// Its functions are safe for concurrent use.
package machine

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// Describe returns a description of this machine. Unknown fields are empty: /proc/cpuinfo on arm64,
// for example, has no CPU model.
func Describe() result.Machine {
	_, model, _ := strings.Cut(proc.line("cpuinfo", "model name"), ":")
	m := result.Machine{
		CPU: strings.TrimSpace(model), CPUs: runtime.NumCPU(), Go: runtime.Version(),
		Kernel:      strings.TrimSpace(proc.line("sys/kernel/osrelease", "")),
		Memory:      proc.number("meminfo", "MemTotal:", 0).n << 10,
		Descriptors: proc.number("self/limits", "Max open files", 1).n,
	}
	m.Name, _ = os.Hostname()
	return m
}

// Descriptors returns the limit of descriptors of a process, the hard limit. The Go runtime raises
// the soft limit of a program to it, but not of those that it starts. Descriptors raises theirs: a
// launched server may be written in another language.
func Descriptors() int {
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) // it cannot fail
	limit.Cur = limit.Max
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	return int(min(limit.Max, 1<<30))
}

// ProcessUsage returns the current memory of processes, and the CPU time of all their threads,
// without their children. It is zero for a process that does not exist. A zombie has no memory.
func ProcessUsage(pids ...int) (sum result.Usage) {
	for _, pid := range pids {
		var cpu unix.Timespec
		// The clock of a process, see clock_getcpuclockid(3).
		_ = unix.ClockGettime(int32(^pid<<3|2), &cpu)
		file := strconv.Itoa(pid) + "/status"
		sum.RSS += proc.number(file, "VmRSS:", 0).n << 10
		sum.Anonymous += proc.number(file, "RssAnon:", 0).n << 10
		sum.CPU += time.Duration(cpu.Nano())
	}
	return sum
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
