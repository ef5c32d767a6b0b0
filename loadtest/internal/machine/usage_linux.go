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

// userTick is the unit of processor time in /proc: USER_HZ is 100 on every architecture that Go knows.
const userTick = 10 * time.Millisecond

// Of returns what a process uses: its memory now, and the processor time of all its threads since it began, in user and system mode,
// without that of its children.
//
// The error for a process that does not exist, or ends meanwhile, wraps fs.ErrNotExist or syscall.ESRCH. One that has ended and that
// nobody has waited for is no error: it has no memory.
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

// cpuTime returns the processor time in the text of /proc/<pid>/stat: its fields 14 and 15. The second is the name of the process in
// parentheses, in which there may be anything, also spaces and parentheses: the last one ends it.
func cpuTime(stat string) (time.Duration, error) {
	const first, user, system = 3, 14, 15 // as proc_pid_stat(5) counts them
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
