package server

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/idlewheel/idlewheel/idle"
)

// The shares are such that output does not take the memory of the rest. A buffer of gnet takes up
// to twice the memory of its bytes, so output takes at most half of GOMEMLIMIT. The limit of a
// container includes the memory of the kernel for sockets. Without GOMEMLIMIT the heap may also
// grow to twice its live bytes before a collection.
const (
	shareOfGo        = 4         // the part of GOMEMLIMIT
	shareOfContainer = 8         // the part of the memory limit of the container
	defaultTotal     = 256 << 20 // bytes, without any limit of memory
)

// OutputTotal returns the value of OutputLimit.Total that a Server uses: the one of the limit, or,
// if that is zero, a quarter of GOMEMLIMIT or an eighth of the memory limit of the container
// (cgroup v1 or v2), whichever is less. If there is neither, it is 256 MiB. It is at least Hard and
// Soft. Callers that replace all limits by Reaper.Update need it.
func OutputTotal(limit idle.OutputLimit) int {
	if limit.Total != 0 {
		return limit.Total
	}
	return max(totalFor(debug.SetMemoryLimit(-1), containerLimit(os.DirFS("/"))), limit.Hard, limit.Soft)
}

// totalFor returns the limit of all output for limits of memory, of which math.MaxInt64 is none.
func totalFor(ofGo, ofContainer int64) int {
	if ofGo <= 0 {
		ofGo = math.MaxInt64
	}
	total := min(ofGo/shareOfGo, ofContainer/shareOfContainer)
	if min(ofGo, ofContainer) == math.MaxInt64 {
		total = defaultTotal
	}
	return int(max(min(total, math.MaxInt), 1))
}

// containerLimit returns the lowest memory limit of the control groups that the process is in,
// math.MaxInt64 if there is none. It looks where systemd and the container engines of Linux mount
// the groups. Other systems have none of the files.
func containerLimit(root fs.FS) int64 {
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	groups := map[string]string{} // by controller; "" is cgroup v2
	for line := range strings.Lines(string(text)) {
		if part := strings.SplitN(strings.TrimSpace(line), ":", 3); len(part) == 3 {
			for controller := range strings.SplitSeq(part[1], ",") {
				groups[controller] = part[2]
			}
		}
	}
	return min(groupLimit(root, "sys/fs/cgroup", groups[""], "memory.max"),
		groupLimit(root, "sys/fs/cgroup/memory", groups["memory"], "memory.limit_in_bytes"))
}

// groupLimit returns the lowest of the limits of a group and of its parents, which apply as well.
// In a container the group of the container may be mounted as the topmost one: the folders below it
// do not exist then.
func groupLimit(root fs.FS, dir, group, name string) int64 {
	limit := int64(math.MaxInt64)
	for inside := path.Clean("/" + group); ; inside = path.Dir(inside) {
		text, _ := fs.ReadFile(root, path.Join(dir, inside, name))
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && n < math.MaxInt64/2 { // otherwise "max", or the highest number of pages
			limit = min(limit, n)
		}
		if inside == "/" {
			return limit
		}
	}
}
