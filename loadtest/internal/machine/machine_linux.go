// Package machine reads what this machine is and can hold, and what its processes and its kernel
// use: from /proc, and from the kernel through netlink. For each limit that is too low it names a
// fix, a command for the operator. It changes nothing, except that [RaiseDescriptors] raises the
// soft limit of descriptors. Linux only.
//
// Its functions are safe for concurrent use.
package machine

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// Describe returns a description of this machine. Unknown fields are empty: /proc/cpuinfo on arm64,
// for example, has no CPU model.
func Describe() result.Machine {
	_, model, _ := strings.Cut(proc.line("cpuinfo", "model name"), ":")
	m := result.Machine{
		CPU: strings.TrimSpace(model), CPUs: runtime.NumCPU(), Go: runtime.Version(),
		Kernel:      strings.TrimSpace(proc.text("sys/kernel/osrelease")),
		Memory:      proc.number("meminfo", "MemTotal:", 0).n << 10,
		Descriptors: proc.number("self/limits", "Max open files", 1).n,
	}
	m.Name, _ = os.Hostname()
	return m
}

// RaiseDescriptors raises the soft limit of descriptors to the hard limit, and returns it.
// Processes started later inherit it.
func RaiseDescriptors() (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("machine: limit of descriptors: %w", err)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("machine: raise the limit of descriptors to %d: %w", limit.Max, err)
	}
	return int(min(limit.Max, math.MaxInt)), nil
}
