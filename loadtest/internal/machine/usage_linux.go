package machine

import (
	"strconv"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/proc"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// userTick is the unit of CPU time in /proc. USER_HZ is 100 on every architecture that Go supports.
const userTick = 10 * time.Millisecond

// ProcessUsage returns the current memory of a process, and the CPU time of all its threads,
// without its children. It is zero if the process does not exist. A zombie has no memory.
func ProcessUsage(pid int) result.Usage {
	files, dir := proc.System(), strconv.Itoa(pid)
	return result.Usage{
		RSS:       files.FieldAfter(dir+"/status", "VmRSS:", 0).N << 10,
		Anonymous: files.FieldAfter(dir+"/status", "RssAnon:", 0).N << 10,
		CPU:       cpuTime(files.Text(dir + "/stat")),
	}
}

// cpuTime returns the CPU time in the text of /proc/<pid>/stat, fields 14 and 15. Field 2 is the
// process name in parentheses. It may contain any character, so the last closing parenthesis ends
// it.
func cpuTime(stat string) time.Duration {
	const first, user, system = 3, 14, 15 // field numbers of proc_pid_stat(5)
	rest := stat[strings.LastIndexByte(stat, ')')+1:]
	return time.Duration(proc.Parse(rest, user-first).N+proc.Parse(rest, system-first).N) * userTick
}
