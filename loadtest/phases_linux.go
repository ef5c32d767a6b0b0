package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// running reports whether the run continues.
func (r *run) running() bool { return !r.failed && r.ctx.Err() == nil }

// fail ends the run with an error.
func (r *run) fail(format string, args ...any) {
	r.failed = true
	r.res.Errors = append(r.res.Errors, fmt.Sprintf(format, args...))
}

// cannot ends the run with a fault of this program or this machine.
func (r *run) cannot(format string, args ...any) {
	r.failed = true
	r.res.Faults = append(r.res.Faults, fmt.Sprintf(format, args...))
}

// note adds a remark to the result.
func (r *run) note(format string, args ...any) {
	r.res.Notes = append(r.res.Notes, fmt.Sprintf(format, args...))
}

// phase starts a phase with some commands, and waits until the condition holds, the time is over or
// the run ends. It reports whether the run continues.
func (r *run) phase(name string, atMost time.Duration, until func(all *result.Group) bool, commands ...load.Command) bool {
	if !r.running() {
		return false
	}
	r.clients.Tell(load.Command{Phase: name})
	for _, command := range commands {
		r.clients.Tell(command)
	}
	from := time.Since(r.res.Began)
	for r.running() {
		var working bool
		r.now, working = r.clients.Report()
		passed := time.Since(r.res.Began) - from
		if time.Since(r.sampled) >= time.Second {
			r.sample(name, passed.Seconds()/atMost.Seconds())
		}
		switch died := r.servers.Died(); {
		case died != nil:
			r.fail("%v", died)
		case !working:
			r.cannot("a client process ended before the run")
		}
		if passed >= atMost || until != nil && until(r.now.Total()) {
			break
		}
		select {
		case <-r.ctx.Done():
		case <-time.After(min(phasePoll, atMost-passed)):
		}
	}
	r.res.Phases = append(r.res.Phases, result.Phase{Name: name, From: from, To: time.Since(r.res.Began)})
	// The charts show the end of each phase.
	if !r.running() || time.Since(r.sampled) > phasePoll {
		r.sample(name, 1)
	}
	return r.running()
}

// openAll waits until all connections are open or have failed, except deferred ones.
func (r *run) openAll() bool {
	want := uint64(0)
	for _, s := range r.specs {
		if !s.Deferred {
			want += uint64(s.Connections)
		}
	}
	atMost := 4*time.Duration(float64(want)/r.opt.Rate*float64(time.Second)) + r.opt.Ramp + r.opt.Patience + closeGrace
	done := r.phase(opening, atMost, func(all *result.Group) bool {
		return all.Opened+all.OpenFailed >= want || isRefused(all)
	})
	return done && r.checkReached()
}

// checkReached ends the run if no connection was opened.
func (r *run) checkReached() bool {
	why := append(r.now.Failures.Reasons(), "no connection was opened")[0]
	switch {
	case r.now.Total().Opened > 0:
	case strings.HasPrefix(why, "bind"):
		r.cannot("no connection can be opened: %s: set another --source", why)
	default:
		r.fail("no server can be reached at %s: %s", strings.Join(r.opt.Targets, ", "), why)
	}
	return r.running()
}

// isRefused reports whether many connections have failed to open, and none has been opened.
func isRefused(all *result.Group) bool { return all.Opened == 0 && all.OpenFailed >= 200 }

// isGone reports whether no connection is open.
func isGone(all *result.Group) bool { return all.Open == 0 }

// hold waits while the connections are served, and records their cost. It ends early when none is
// left.
func (r *run) hold(name string, d time.Duration) bool {
	from := r.measure()
	on := r.phase(name, d, isGone)
	r.recordCosts(from, r.measure())
	return on
}

// awaitReaping silences the heartbeats, and waits until the target has closed all connections, or
// should have long ago.
func (r *run) awaitReaping() bool {
	if r.opt.targetTimeout() == 0 {
		return r.running()
	}
	return r.phase(silent, r.opt.targetTimeout()+2*r.opt.Tick+closeGrace, isGone, load.Command{Silence: beating})
}

// openOf returns the number of open connections of a group.
func (r *run) openOf(group string) (n uint64) {
	for _, g := range r.now.Groups {
		if g.Name == group {
			n += g.Open
		}
	}
	return n
}

// measure measures the current state. Its Kernel is that of the whole machine.
func (r *run) measure() result.Sample {
	all := r.now.Total()
	return result.Sample{
		At: time.Since(r.res.Began), Open: all.Open, Opened: all.Opened, Closed: all.Opened - all.Open, Messages: all.Messages,
		Server: machine.ProcessUsage(r.serverPids()...), Client: machine.ProcessUsage(r.clients.Pids...),
		Kernel: machine.KernelMemory(),
	}
}

// serverPids returns the IDs of the known processes of the target.
func (r *run) serverPids() []int { return slices.Concat(r.servers.Pids, r.opt.pids) }

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
func progress(samples []result.Sample, all *result.Group, phase string, part float64, width int) string {
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
