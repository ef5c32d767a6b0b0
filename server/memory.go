package server

import (
	"fmt"
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
// math.MaxInt64 if there is none.
func containerLimit(root fs.FS) int64 {
	limit := int64(math.MaxInt64)
	for _, g := range limitedGroups(root) {
		limit = min(limit, g.limit)
	}
	return limit
}

// A memoryGroup is a control group with a memory limit.
type memoryGroup struct {
	limit int64  // bytes
	usage string // the file with the bytes in use
	stat  string // the file with the bytes of the file cache
	cache string // their name in it
}

// limitedGroups returns the control groups that the process is in, its containers, that have a
// memory limit. It looks where systemd and the container engines of Linux mount the groups. Other
// systems have none of the files.
func limitedGroups(root fs.FS) []memoryGroup {
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	groups := map[string]string{} // by controller; "" is cgroup v2
	for line := range strings.Lines(string(text)) {
		if part := strings.SplitN(strings.TrimSpace(line), ":", 3); len(part) == 3 {
			for controller := range strings.SplitSeq(part[1], ",") {
				groups[controller] = part[2]
			}
		}
	}
	return append(limitedParents(root, "sys/fs/cgroup", groups[""], "memory.max", memoryGroup{usage: "memory.current", cache: "inactive_file"}),
		limitedParents(root, "sys/fs/cgroup/memory", groups["memory"], "memory.limit_in_bytes",
			memoryGroup{usage: "memory.usage_in_bytes", cache: "total_inactive_file"})...)
}

// limitedParents returns those of a group and its parents that have a limit. All of them apply. In
// a container the group of the container may be mounted as the topmost one: the folders below it do
// not exist then.
func limitedParents(root fs.FS, dir, group, name string, names memoryGroup) (all []memoryGroup) {
	for inside := path.Clean("/" + group); ; inside = path.Dir(inside) {
		at := path.Join(dir, inside)
		limit := readBytes(root, path.Join(at, name))
		if limit > 0 && limit < math.MaxInt64/2 { // not "max", and not the most pages
			all = append(all, memoryGroup{limit, path.Join(at, names.usage), path.Join(at, "memory.stat"), names.cache})
		}
		if inside == "/" {
			return all
		}
	}
}

func readBytes(root fs.FS, name string) (n int64) {
	text, _ := fs.ReadFile(root, name)
	_, _ = fmt.Sscan(string(text), &n)
	return n
}

// used returns the used part of the memory of a group, as kubelet counts it: without the cache of
// files that were not used lately, which the kernel gives up first. With cgroup v2 the buffers of
// sockets are included.
func (g memoryGroup) used(root fs.FS) float64 {
	usage := readBytes(root, g.usage)
	if part := float64(usage) / float64(g.limit); part < pressureFrom {
		return part // the cache makes no difference, and costs more to read
	}
	text, _ := fs.ReadFile(root, g.stat)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == g.cache {
			cached, _ := strconv.ParseInt(fields[1], 10, 64)
			usage -= min(max(cached, 0), usage)
		}
	}
	return float64(usage) / float64(g.limit)
}
