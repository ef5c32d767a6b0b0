// Package memory finds out how much memory the process may use, and which part of it is for output
// that waits in the buffers of an engine.
package memory

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// The shares are such that output does not take the memory of the rest. A buffer of gnet takes up
// to twice the memory of its bytes, so output takes at most half of GOMEMLIMIT. The limit of a
// container includes the memory of the kernel for sockets. Without GOMEMLIMIT the heap may also
// grow to twice its live bytes before a collection.
const (
	shareOfGo        = 4 // the part of GOMEMLIMIT
	shareOfContainer = 8 // the part of the memory limit of the container
)

// defaultTotal is the limit of output without any limit of memory.
const defaultTotal = 256 << 20

// OutputTotal returns the limit of all output for this process.
func OutputTotal() int { return outputTotal(debug.SetMemoryLimit(-1), containerLimit(os.DirFS("/"))) }

// outputTotal returns the limit of all output for limits of memory, of which math.MaxInt64 is none.
func outputTotal(ofGo, ofContainer int64) int {
	total := int64(math.MaxInt64)
	if ofGo > 0 && ofGo < math.MaxInt64 {
		total = ofGo / shareOfGo
	}
	if ofContainer < math.MaxInt64 {
		total = min(total, ofContainer/shareOfContainer)
	}
	if total == math.MaxInt64 {
		total = defaultTotal
	}
	return int(max(min(total, math.MaxInt), 1))
}

// containerLimit returns the lowest memory limit of the control groups that the process is in,
// math.MaxInt64 if there is none. Other systems than Linux have none of the files.
func containerLimit(root fs.FS) int64 {
	limit := int64(math.MaxInt64)
	mounts, _ := fs.ReadFile(root, "proc/self/mountinfo")
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(mounts)) {
		m, ok := parseMount(line)
		if !ok {
			continue
		}
		dir, inside := m.point, m.inside(string(groups))
		limit = min(limit, m.limitOf(root, dir))
		for name := range strings.SplitSeq(inside, "/") { // the limit of each parent applies as well
			dir = path.Join(dir, name)
			limit = min(limit, m.limitOf(root, dir))
		}
	}
	return limit
}

// A mount is a mount of a hierarchy of control groups that limit memory.
type mount struct {
	root, point string // the group that is mounted, and the folder without the first slash
	controller  string // "memory", or "" for cgroup v2
}

// parseMount parses a line of /proc/self/mountinfo, see proc_pid_mountinfo(5).
func parseMount(line string) (m mount, ok bool) {
	before, after, _ := strings.Cut(line, " - ")
	at, kind := strings.Fields(before), strings.Fields(after)
	if len(at) < 5 || len(kind) < 3 {
		return m, false
	}
	m = mount{root: at[3], point: strings.TrimPrefix(at[4], "/")}
	switch kind[0] {
	case "cgroup2":
		return m, true
	case "cgroup":
		m.controller = "memory"
		return m, strings.Contains(","+kind[2]+",", ",memory,")
	}
	return m, false
}

// inside returns the group of the process below the mount, from the text of /proc/self/cgroup.
func (m mount) inside(groups string) string {
	for line := range strings.Lines(groups) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) == 3 && strings.Contains(","+part[1]+",", ","+m.controller+",") {
			if inside, ok := strings.CutPrefix(part[2], strings.TrimSuffix(m.root, "/")); ok && !strings.Contains(inside, "..") {
				return strings.Trim(inside, "/")
			}
		}
	}
	return "" // the mount shows the group of the container
}

// limitOf returns the limit of one group.
func (m mount) limitOf(root fs.FS, dir string) int64 {
	name := "memory.max"
	if m.controller != "" {
		name = "memory.limit_in_bytes"
	}
	text, _ := fs.ReadFile(root, path.Join(dir, name))
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || limit > math.MaxInt64/2 { // "max", or the highest number of pages
		return math.MaxInt64
	}
	return limit
}
