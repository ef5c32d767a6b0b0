package server

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
)

const noLimit = int64(math.MaxInt64)

func TestTheTotalFollowsTheMemory(t *testing.T) {
	for _, tc := range []struct {
		ofGo, ofContainer int64
		want              int
	}{
		{noLimit, noLimit, 256 << 20},
		{256 << 20, noLimit, 64 << 20},
		{noLimit, 1 << 30, 128 << 20},
		{512 << 20, 1 << 30, 128 << 20},
		{256 << 20, 1 << 30, 64 << 20},
		{2 << 30, 1 << 30, 128 << 20},
		{0, noLimit, 256 << 20},
		{1, 1, 1},
	} {
		require.Equal(t, tc.want, totalFor(tc.ofGo, tc.ofContainer), "%+v", tc)
	}
	before := debug.SetMemoryLimit(400 << 10)
	defer debug.SetMemoryLimit(before)
	require.Equal(t, 100<<10, OutputTotal(idle.OutputLimit{}))
}

func TestContainerLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		groups string
		files  map[string]string
		want   int64
	}{
		"no files":           {want: noLimit},
		"v2, container":      {"0::/\n", map[string]string{"sys/fs/cgroup/memory.max": "1000\n"}, 1000},
		"v2, no limit":       {"0::/\n", map[string]string{"sys/fs/cgroup/memory.max": "max\n"}, noLimit},
		"v2, of a parent":    {"0::/a/b\n", map[string]string{"sys/fs/cgroup/a/memory.max": "7", "sys/fs/cgroup/a/b/memory.max": "9"}, 7},
		"v2, of itself":      {"0::/a/b\n", map[string]string{"sys/fs/cgroup/a/memory.max": "max", "sys/fs/cgroup/a/b/memory.max": "9"}, 9},
		"v2, above its root": {"0::/../x\n", map[string]string{"sys/fs/cgroup/memory.max": "11"}, 11},
		"v1":                 {"9:cpu:/c\n8:memory:/m\n", map[string]string{"sys/fs/cgroup/memory/m/memory.limit_in_bytes": "5"}, 5},
		"v1, no limit":       {"8:memory:/\n", map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, noLimit},
		"v1, container":      {"8:cpu,memory:/kubepods/a\n", map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "6"}, 6},
		"v1, not named":      {"", map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "6"}, 6},
		"both":               {"8:memory:/m\n0::/\n", map[string]string{"sys/fs/cgroup/memory/m/memory.limit_in_bytes": "5", "sys/fs/cgroup/memory.max": "4"}, 4},
		"damaged":            {"0\n::\n", nil, noLimit},
	} {
		root := fstest.MapFS{}
		for path, text := range tc.files {
			root[path] = &fstest.MapFile{Data: []byte(text)}
		}
		root["proc/self/cgroup"] = &fstest.MapFile{Data: []byte(tc.groups)}
		require.Equal(t, tc.want, containerLimit(root), name)
	}
}

// TestMemoryOfTheContainerIsPressure leaves out the cache that the kernel gives up first.
func TestMemoryOfTheContainerIsPressure(t *testing.T) {
	for name, tc := range map[string]struct {
		dir, limit, usage, used, stat string
		want                          float64
	}{
		"v2":              {"sys/fs/cgroup/a/b", "memory.max", "memory.current", "500\n", "anon 7\ninactive_file 400\n", 0.5},
		"v2, full":        {"sys/fs/cgroup/a", "memory.max", "memory.current", "1000", "anon 7\ninactive_file 100\nsock 3\n", 0.9},
		"v2, all cache":   {"sys/fs/cgroup/a", "memory.max", "memory.current", "1000", "inactive_file 2000\n", 0},
		"v2, damaged":     {"sys/fs/cgroup/a", "memory.max", "memory.current", "950", "inactive_file x\ninactive_file\n", 0.95},
		"v2, not counted": {"sys/fs/cgroup/a", "memory.max", "other", "950", "", 0},
		"v1":              {"sys/fs/cgroup/memory/m", "memory.limit_in_bytes", "memory.usage_in_bytes", "990", "inactive_file 1\ntotal_inactive_file 90\n", 0.9},
	} {
		root := fstest.MapFS{"proc/self/cgroup": {Data: []byte("8:memory:/m\n0::/a/b\n")}}
		for file, text := range map[string]string{tc.limit: "1000\n", tc.usage: tc.used, "memory.stat": tc.stat} {
			root[tc.dir+"/"+file] = &fstest.MapFile{Data: []byte(text)}
		}
		groups := limitedGroups(root)
		require.Len(t, groups, 1, name)
		require.InDelta(t, tc.want, groups[0].used(root), 1e-9, name)
	}
	groups := limitedGroups(fstest.MapFS{"sys/fs/cgroup/memory.max": {Data: []byte("0\n")}})
	require.Empty(t, groups, "no part of nothing")
}
