package server

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestTheLimitIsRaisedToTheHardLimit runs this test again below a soft limit of 256 descriptors.
func TestTheLimitIsRaisedToTheHardLimit(t *testing.T) {
	const child = "IDLEWHEEL_LOW_LIMIT"
	if os.Getenv(child) == "" {
		cmd := exec.Command("sh", "-c", `ulimit -S -n 256 && exec "$0" -test.run '^TestTheLimitIsRaisedToTheHardLimit$'`, os.Args[0])
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return
	}
	var lim unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &lim))
	require.Greater(t, lim.Max, uint64(256))
	require.InDelta(t, min(lim.Max, 1<<30), descriptorLimit(), 1)
}

// TestOpenFilesAreInUse opens 500 files, and counts the descriptors as often as a monitor asks.
func TestOpenFilesAreInUse(t *testing.T) {
	const more = 500
	s := newServer(t, Config{})
	s.setup.Store(&setup{budget: budget{allowed: 12_345}})
	shown := values(t, s)["open_descriptors"]
	require.Positive(t, shown)
	before, free := descriptorsInUse(), lowestFree()
	for range more {
		f, err := os.Open(os.DevNull)
		require.NoError(t, err)
		defer f.Close()
	}
	now := descriptorsInUse()
	require.GreaterOrEqual(t, now, before+more)
	require.InDelta(t, now, listDescriptors("/proc/self/fd"), 5, "other tests open and close some")
	require.Greater(t, listDescriptors("/no/proc"), free)
	require.InDelta(t, shown+more, values(t, s)["open_descriptors"], 25, "other tests open and close descriptors")

	var dir unix.Stat_t
	require.NoError(t, unix.Stat("/proc/self/fd", &dir))
	if dir.Size == 0 {
		t.Skip("the kernel does not count descriptors: Linux 6.2 is needed")
	}
	require.LessOrEqual(t, testing.AllocsPerRun(20, func() { descriptorsInUse() }), 10.0, "a list would allocate for each descriptor")
}

func TestNoDescriptorIsFreeAtTheLimit(t *testing.T) {
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	next := lowestFree()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next), Max: was.Max}))
	none := lowestFree()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	require.Equal(t, next, none, "it is the limit")
}
