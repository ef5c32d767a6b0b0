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
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	require.NoError(t, err)
	require.Equal(t, string(release), m.Kernel+"\n")
	hostname, err := os.ReadFile("/proc/sys/kernel/hostname")
	require.NoError(t, err)
	require.Equal(t, string(hostname), m.Name+"\n")
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	require.Equal(t, limit.Max, m.Descriptors)
}

func TestCPUModel(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		"processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC: 7R13\nmodel name\t: other\n": "AMD EPYC: 7R13",
		"processor\t: 0\nCPU implementer\t: 0x41\n":                                         "",
		"model name": "",
	} {
		require.Equal(t, want, cpuModel(text), "%q", text)
	}
}

func TestKilobytes(t *testing.T) {
	for _, test := range []struct {
		text  string
		want  uint64
		found bool
		bad   bool
	}{
		{text: "Name:\tVmRSS: 7 kB\nVmHWM:\t 9 kB\nVmRSS:\t    1768 kB\nRssAnon:\t 1 kB\n", want: 1768 << 10, found: true},
		{text: "VmRSS: 0 kB", found: true},
		{text: ""},
		{text: "VmRSSX: 1 kB\n"},
		{text: "VmRSS: 1 MB\n", bad: true},
		{text: "VmRSS: 1\n", bad: true},
		{text: "VmRSS: -1 kB\n", bad: true},
		{text: "VmRSS:\n", bad: true},
		{text: "VmRSS: 18014398509481983 kB\n", want: math.MaxUint64 &^ 1023, found: true},
		{text: "VmRSS: 18014398509481984 kB\n", bad: true},
	} {
		got, found, err := kilobytes(test.text, "VmRSS")
		require.Equal(t, test.bad, err != nil, "%q: %v", test.text, err)
		require.Equal(t, test.found, found, "%q", test.text)
		require.Equal(t, test.want, got, "%q", test.text)
	}
	_, err := kilobytesOf("/proc/self/status", "Slab")
	require.ErrorContains(t, err, "/proc/self/status has no Slab")
	_, err = kilobytesOf("/proc/none", "Slab")
	require.ErrorIs(t, err, os.ErrNotExist)
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
