package machine

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// userTick is the unit of CPU time in /proc. USER_HZ is 100 on every architecture that Go supports.
const userTick = 10 * time.Millisecond

// ProcessUsage returns the current memory of a process, and the CPU time of all its threads,
// without its children.
//
// The error wraps fs.ErrNotExist or syscall.ESRCH if the process does not exist or ends during the
// call. A zombie is no error; it has no memory.
func ProcessUsage(pid int) (result.Usage, error) {
	var u result.Usage
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, fmt.Errorf("machine: process %d: %w", pid, err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, fmt.Errorf("machine: process %d: %w", pid, err)
	}
	if u.RSS, _, err = kilobytes(string(status), "VmRSS"); err != nil {
		return result.Usage{}, err
	}
	if u.Anonymous, _, err = kilobytes(string(status), "RssAnon"); err != nil {
		return result.Usage{}, err
	}
	if u.CPU, err = cpuTime(string(stat)); err != nil {
		return result.Usage{}, err
	}
	return u, nil
}

// cpuTime returns the CPU time in the text of /proc/<pid>/stat, fields 14 and 15. Field 2 is the
// process name in parentheses. It may contain any character, so the last closing parenthesis ends
// it.
func cpuTime(stat string) (time.Duration, error) {
	const first, user, system = 3, 14, 15 // field numbers of proc_pid_stat(5)
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if !strings.Contains(stat, ")") || len(fields) <= system-first {
		return 0, fmt.Errorf("machine: not the stat of a process: %q", stat)
	}
	var sum uint64
	for _, field := range fields[user-first : system-first+1] {
		ticks, err := strconv.ParseUint(field, 10, 64)
		if err != nil || ticks > math.MaxInt64/uint64(userTick)/2 {
			return 0, fmt.Errorf("machine: not the stat of a process: %q", stat)
		}
		sum += ticks
	}
	return time.Duration(sum) * userTick, nil
}
