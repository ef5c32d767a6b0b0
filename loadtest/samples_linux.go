package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/term"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// measure measures the current state. Its Kernel is that of the whole machine.
func (r *run) measure() result.Sample {
	all := r.now.Total()
	return result.Sample{
		At: time.Since(r.res.Began), Open: all.Open, Opened: all.Opened, Closed: all.Opened - all.Open, Messages: all.Messages,
		Server: sumUsage(r.serverPids()), Client: sumUsage(r.clients.Pids), Kernel: machine.KernelMemory(),
	}
}

// serverPids returns the IDs of the known processes of the target.
func (r *run) serverPids() []int { return slices.Concat(r.servers.Pids, r.opt.pids) }

// sumUsage returns the use of several processes. One that has ended uses nothing.
func sumUsage(pids []int) (sum result.Usage) {
	for _, pid := range pids {
		of := machine.ProcessUsage(pid)
		sum.RSS += of.RSS
		sum.Anonymous += of.Anonymous
		sum.CPU += of.CPU
	}
	return sum
}

// sample shows the current state and stores it. part is how much of the phase has passed.
func (r *run) sample(phase string, part float64) {
	r.sampled = time.Now()
	now := r.measure()
	now.Kernel -= min(now.Kernel, r.baseline.Kernel)
	now.Latency = r.clients.TakeLatency().Quantiles()
	r.res.Samples = append(r.res.Samples, now)
	out := r.opt.cmd.ErrOrStderr()
	fmt.Fprint(out, progress(r.res.Samples, r.now.Total(), phase, part, terminalWidth(out)))
}

// progress describes the last sample: for a terminal with some width in one line that changes, and
// for a width of 0 in a line of its own.
func progress(samples []result.Sample, all result.Group, phase string, part float64, width int) string {
	now, before, rate := samples[len(samples)-1], samples[max(len(samples)-2, 0)], uint64(0)
	if since := now.At - before.At; since > 0 && now.Messages > before.Messages {
		rate = uint64(float64(now.Messages-before.Messages) / since.Seconds())
	}
	line := fmt.Sprintf("%3.0fs %-8s %7s open %6s msg/s %s lost %s reaped", now.At.Seconds(), phase, format.Count(now.Open), format.Count(rate),
		format.Count(all.Lost), format.Count(all.Reaped))
	if all.OpenFailed > 0 {
		line += fmt.Sprintf(" %s not opened", format.Count(all.OpenFailed))
	}
	if width == 0 {
		return line + "\n"
	}
	line = fmt.Sprintf("%3.0f%% %s", 100*min(part, 1), line)
	// A line as wide as the terminal would wrap on some.
	return eraseLine + line[:min(len(line), width-1)]
}

// eraseLine erases the line of progress on a terminal.
const eraseLine = "\r\x1b[K"

// terminalWidth returns the width of a terminal, or 0 if out is none.
func terminalWidth(out io.Writer) int {
	f, ok := out.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return cmp.Or(width, 80)
}

// recordCosts records the cost of the connections that were held between two measurements.
func (r *run) recordCosts(from, now result.Sample) {
	if now.Open < 1000 { // the cost of the processes would dominate
		return
	}
	per := func(after, before uint64) float64 { return (float64(after) - float64(before)) / float64(now.Open) }
	r.res.Costs = &result.Costs{
		Connections: now.Open,
		ServerBytes: per(now.Server.Anonymous, r.baseline.Server.Anonymous),
		BareBytes:   r.opt.bareBytes,
		ClientBytes: per(now.Client.Anonymous, r.baseline.Client.Anonymous),
		KernelBytes: per(now.Kernel, r.baseline.Kernel),
		BothEnds:    len(r.serverPids()) > 0,
		ServerCPU:   now.Server.CPU - from.Server.CPU,
		ClientCPU:   now.Client.CPU - from.Client.CPU,
	}
}
