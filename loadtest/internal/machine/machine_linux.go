// Package machine reads what this machine is, and what its processes and its kernel use: from
// /proc, and from the kernel through netlink. It changes nothing, except that [RaiseDescriptors]
// raises the soft limit of descriptors. Linux only.
//
// Its functions are safe for concurrent use.
package machine

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// Describe returns a description of this machine. Unknown fields are empty: /proc/cpuinfo on arm64,
// for example, has no CPU model.
func Describe() result.Machine {
	m := result.Machine{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	m.Name, _ = os.Hostname()
	if cpuinfo, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = cpuModel(string(cpuinfo))
	}
	m.Memory, _ = kilobytesOf("/proc/meminfo", "MemTotal")
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		m.Descriptors = limit.Max
	}
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

// cpuModel returns the model of the first CPU in the text of /proc/cpuinfo, or "".
func cpuModel(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return ""
}

// kilobytesOf returns the named amount in a file such as /proc/meminfo, in bytes.
func kilobytesOf(file, name string) (uint64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("machine: %w", err)
	}
	amount, found, err := kilobytes(string(text), name)
	if err == nil && !found {
		err = fmt.Errorf("machine: %s has no %s", file, name)
	}
	return amount, err
}

// kilobytes returns the named amount in a text with lines such as "VmRSS: 1768 kB", in bytes, and
// whether it is there.
func kilobytes(text, name string) (amount uint64, found bool, err error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) != 2 || fields[1] != "kB" {
			return 0, false, fmt.Errorf("machine: not an amount in kB: %q", line)
		}
		n, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil || n > math.MaxUint64>>10 {
			return 0, false, fmt.Errorf("machine: not an amount in kB: %q", line)
		}
		return n << 10, true, nil
	}
	return 0, false, nil
}
