package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestUsageOfThisProcess(t *testing.T) {
	debug.FreeOSMemory() // otherwise the heap may shrink meanwhile
	u, err := ProcessUsage(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, u.Anonymous, uint64(64<<10))
	require.Greater(t, u.RSS, u.Anonymous, "RSS includes the file of the program")

	const size = 64 << 20
	// The heap might already have the memory, so it is mapped.
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	for i := 0; i < size; i += 4096 {
		memory[i] = 1
	}
	grown, err := ProcessUsage(os.Getpid())
	require.NoError(t, err)
	require.InDelta(t, size, float64(grown.Anonymous)-float64(u.Anonymous), size/8)
	require.InDelta(t, size, float64(grown.RSS)-float64(u.RSS), size/8)

	require.NoError(t, unix.Munmap(memory))
	shrunk, err := ProcessUsage(os.Getpid())
	require.NoError(t, err)
	require.InDelta(t, u.RSS, shrunk.RSS, size/8, "RSS is the current value, not the peak")
}

func TestUsageCountsProcessorTime(t *testing.T) {
	u, err := ProcessUsage(os.Getpid())
	require.NoError(t, err)
	began := processorTime(t)
	for processorTime(t)-began < 300*time.Millisecond { // uses user time, and system time by the call
	}
	after, err := ProcessUsage(os.Getpid())
	require.NoError(t, err)
	require.InDelta(t, processorTime(t)-began, after.CPU-u.CPU, float64(5*userTick))
}

// processorTime returns the CPU time from another source.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var r unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func TestUsageOfVanishedProcess(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "exit 0")
	require.NoError(t, cmd.Start())
	pid := cmd.Process.Pid
	require.NoError(t, unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil))

	u, err := ProcessUsage(pid)
	require.NoError(t, err, "a zombie")
	require.Zero(t, u.RSS)
	require.Zero(t, u.Anonymous)

	require.NoError(t, cmd.Wait())
	_, err = ProcessUsage(pid)
	require.True(t, errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH), "%v", err)
}

const rest = " S 1 7 7 0 -1 4194560 111 222 333 444 %d %d 99 88 20 0 1 0 12345 3137536 442 18446744073709551615\n"

func TestCPUTime(t *testing.T) {
	const most = math.MaxInt64 / userTick / 2
	for _, test := range []struct {
		stat string
		want time.Duration
		bad  bool
	}{
		{stat: "7 (cat)" + fmt.Sprintf(rest, 5, 7), want: 120 * time.Millisecond},
		{stat: "7 (a) R 1 (b c)" + fmt.Sprintf(rest, 0, 1), want: 10 * time.Millisecond},
		{stat: "7 ()" + fmt.Sprintf(rest, 0, 0), want: 0},
		{stat: "7 (cat) S 1 7 7 0 -1 4194560 111 222 333 444 5 7", want: 120 * time.Millisecond},
		{stat: "7 (cat) S 1 7 7 0 -1 4194560 111 222 333 444 5", bad: true},
		{stat: "7 (cat) S 1 7 7 0 -1 4194560 111 222 333 444 5 x", bad: true},
		{stat: "7 (cat) S 1 7 7 0 -1 4194560 111 222 333 444 -5 7", bad: true},
		{stat: "7 (cat)" + fmt.Sprintf(rest, uint64(math.MaxUint64), 7), bad: true},
		{stat: "7 (cat)" + fmt.Sprintf(rest, int64(most+1), 0), bad: true},
		{stat: "7 (cat)" + fmt.Sprintf(rest, int64(most), int64(most)), want: 2 * most * userTick},
		{stat: "7 cat S 1 7 7 0 -1 4194560 111 222 333 444 5 7 1 2 3 4 5", bad: true},
		{stat: "7 (cat)", bad: true},
		{stat: "", bad: true},
	} {
		got, err := cpuTime(test.stat)
		require.Equal(t, test.bad, err != nil, "%q: %v", test.stat, err)
		require.Equal(t, test.want, got, "%q", test.stat)
	}
}
