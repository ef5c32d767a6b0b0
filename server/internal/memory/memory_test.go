package memory

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

const none = int64(math.MaxInt64)

func TestOutputTotal(t *testing.T) {
	for _, tc := range []struct {
		ofGo, ofContainer int64
		want              int
	}{
		{none, none, 256 << 20},
		{256 << 20, none, 64 << 20},
		{none, 1 << 30, 128 << 20},
		{512 << 20, 1 << 30, 128 << 20},
		{256 << 20, 1 << 30, 64 << 20},
		{2 << 30, 1 << 30, 128 << 20},
		{0, none, 256 << 20},
		{1, 1, 1},
	} {
		require.Equal(t, tc.want, outputTotal(tc.ofGo, tc.ofContainer), "%+v", tc)
	}
	before := debug.SetMemoryLimit(400 << 10)
	defer debug.SetMemoryLimit(before)
	require.Equal(t, 100<<10, OutputTotal())
}

func TestContainerLimit(t *testing.T) {
	const (
		v2    = "35 24 0:30 / /sys/fs/cgroup ro,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
		v1    = "40 32 0:35 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
		cpu   = "41 32 0:36 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
		inPod = "42 32 0:35 /kubepods/a /sys/fs/cgroup/memory ro - cgroup cgroup rw,cpu,memory\n"
	)
	for name, tc := range map[string]struct {
		mounts, groups string
		files          map[string]string
		want           int64
	}{
		"no files":           {want: none},
		"v2, container":      {v2, "0::/\n", map[string]string{"sys/fs/cgroup/memory.max": "1000\n"}, 1000},
		"v2, no limit":       {v2, "0::/\n", map[string]string{"sys/fs/cgroup/memory.max": "max\n"}, none},
		"v2, of a parent":    {v2, "0::/a/b\n", map[string]string{"sys/fs/cgroup/a/memory.max": "7", "sys/fs/cgroup/a/b/memory.max": "9"}, 7},
		"v2, of itself":      {v2, "0::/a/b\n", map[string]string{"sys/fs/cgroup/a/memory.max": "max", "sys/fs/cgroup/a/b/memory.max": "9"}, 9},
		"v2, above its root": {v2, "0::/../x\n", map[string]string{"sys/fs/cgroup/memory.max": "11"}, 11},
		"v1":                 {cpu + v1, "9:cpu:/c\n8:memory:/m\n", map[string]string{"sys/fs/cgroup/memory/m/memory.limit_in_bytes": "5"}, 5},
		"v1, no limit":       {v1, "8:memory:/\n", map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, none},
		"v1, container":      {inPod, "8:cpu,memory:/kubepods/a\n", map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "6"}, 6},
		"both":               {v1 + v2, "8:memory:/m\n0::/\n", map[string]string{"sys/fs/cgroup/memory/m/memory.limit_in_bytes": "5", "sys/fs/cgroup/memory.max": "4"}, 4},
		"damaged":            {"x\n - \n1 2 3 4 5 - cgroup2\n", "0\n::\n", nil, none},
	} {
		root := fstest.MapFS{}
		for path, text := range tc.files {
			root[path] = &fstest.MapFile{Data: []byte(text)}
		}
		root["proc/self/mountinfo"] = &fstest.MapFile{Data: []byte(tc.mounts)}
		root["proc/self/cgroup"] = &fstest.MapFile{Data: []byte(tc.groups)}
		require.Equal(t, tc.want, containerLimit(root), name)
	}
}
