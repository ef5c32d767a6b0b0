package idle

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkSilence measures the cost of 10,000 silent connections for a server without near
// deadlines: the share of a core in percent, and the resident memory per connection. One operation
// is a run of each server in turn, 15 seconds each.
func BenchmarkSilence(b *testing.B) {
	const n, measured = 10_000, 10 * time.Second
	names := []string{"gnet alone", "read timeout", "everything"}
	cpu, memory := map[string][]float64{}, map[string][]float64{}
	for b.Loop() {
		for _, name := range names {
			server := startChild(b, silentPrefix+name)
			pid := server.cmd.Process.Pid
			empty := residentBytes(b, pid)
			f := dialFleet(b, server.addr, n)
			time.Sleep(3 * time.Second) // lets the work of connecting end
			before := cpuTime(b, pid)
			time.Sleep(measured)
			used := cpuTime(b, pid) - before
			resident := float64(residentBytes(b, pid)-empty) / n
			b.Logf("%-12s %.2f %% of a core, %.0f bytes resident per connection",
				name, 100*float64(used)/float64(measured), resident)
			cpu[name], memory[name] = append(cpu[name], 100*float64(used)/float64(measured)), append(memory[name], resident)
			f.close()
			server.stop()
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, name := range names {
		unit := strings.ReplaceAll(name, " ", "-")
		b.ReportMetric(median(cpu[name]), unit+"-cpu-%")
		b.ReportMetric(median(memory[name]), unit+"-B/conn")
	}
}

// cpuTime returns the processor time that a process has used, from its schedstat: precise to the
// nanosecond, over all its threads.
func cpuTime(tb testing.TB, pid int) (sum time.Duration) {
	tb.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	require.NoError(tb, err)
	for _, thread := range threads {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, thread.Name()))
		require.NoError(tb, err)
		ran, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		require.NoError(tb, err)
		sum += time.Duration(ran)
	}
	return sum
}

func residentBytes(tb testing.TB, pid int) int64 {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	require.NoError(tb, err)
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	require.NoError(tb, err)
	return pages * int64(os.Getpagesize())
}
