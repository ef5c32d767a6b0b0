package machine

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

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
	require.EqualValues(t, min(limit.Max, 1<<30), Descriptors())
	require.LessOrEqual(t, limit.Max-limit.Cur, uint64(1), "the runtime has raised it")
}

func TestUsageOfThisProcess(t *testing.T) {
	debug.FreeOSMemory() // otherwise the heap may shrink meanwhile
	u := ProcessUsage(os.Getpid())
	require.Greater(t, u.Anonymous, uint64(64<<10))
	require.Greater(t, u.RSS, u.Anonymous, "RSS includes the file of the program")

	const size = 64 << 20
	// The heap might already have the memory, so it is mapped.
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	for i := 0; i < size; i += 4096 {
		memory[i] = 1
	}
	grown := ProcessUsage(os.Getpid())
	require.InDelta(t, size, float64(grown.Anonymous)-float64(u.Anonymous), size/8)
	require.InDelta(t, size, float64(grown.RSS)-float64(u.RSS), size/8)

	require.NoError(t, unix.Munmap(memory))
	shrunk := ProcessUsage(os.Getpid())
	require.InDelta(t, u.RSS, shrunk.RSS, size/8, "RSS is the current value, not the peak")
}

func TestUsageCountsProcessorTime(t *testing.T) {
	u := ProcessUsage(os.Getpid())
	began := processorTime(t)
	for processorTime(t)-began < 300*time.Millisecond { // uses user time, and system time by the call
	}
	after := ProcessUsage(os.Getpid())
	require.InDelta(t, processorTime(t)-began, after.CPU-u.CPU, float64(50*time.Millisecond))
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

	u := ProcessUsage(pid)
	require.Zero(t, u.RSS, "a zombie")
	require.Zero(t, u.Anonymous)

	require.NoError(t, cmd.Wait())
	require.Zero(t, ProcessUsage(pid))
}

func TestKernelMemory(t *testing.T) {
	slab := proc.number("meminfo", "Slab:", 0)
	require.True(t, slab.known)
	require.InEpsilon(t, slab.n<<10, KernelMemory(), 0.5, "without traffic it is almost entirely slabs")
}
