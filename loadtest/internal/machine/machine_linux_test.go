package machine

import (
	"math"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestDescribe(t *testing.T) {
	m := Describe()
	require.Equal(t, runtime.NumCPU(), m.CPUs)
	require.Equal(t, runtime.Version(), m.Go)
	require.Greater(t, m.Memory, uint64(64<<20))
	var name unix.Utsname
	require.NoError(t, unix.Uname(&name))
	require.Equal(t, unix.ByteSliceToString(name.Release[:]), m.Kernel)
	hostname, err := os.ReadFile("/proc/sys/kernel/hostname")
	require.NoError(t, err)
	require.Equal(t, string(hostname), m.Name+"\n")
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	require.Equal(t, limit.Max, m.Descriptors)
}

func TestRaiseDescriptors(t *testing.T) {
	var before, after unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	t.Cleanup(func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) })
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: before.Max / 2, Max: before.Max}))

	n, err := RaiseDescriptors()
	require.NoError(t, err)
	require.Equal(t, int(min(before.Max, math.MaxInt)), n)
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &after))
	require.Equal(t, unix.Rlimit{Cur: before.Max, Max: before.Max}, after)
}
