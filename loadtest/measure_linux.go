package main

import (
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A measurement is the use of memory and CPU by the processes and the kernel at one time.
type measurement struct {
	server, client result.Usage
	kernel         uint64
	open           uint64
}

// measure measures the current use.
func (r *run) measure(open uint64) measurement {
	return measurement{sumUsage(r.serverPids()), sumUsage(r.clients.Pids()), machine.KernelMemory(), open}
}

// serverPids returns the IDs of the known processes of the target.
func (r *run) serverPids() []int { return append(r.servers.Pids(), r.opt.pids...) }

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

// sample shows the current state and stores it, once per second.
func (r *run) sample(phase string, report result.Counts, passed, of time.Duration) {
	if time.Since(r.sampled) < sampleEvery {
		return
	}
	r.sampled = time.Now()
	all := report.Total()
	now := r.measure(all.Open)
	r.res.Samples = append(r.res.Samples, result.Sample{
		At: time.Since(r.began), Open: all.Open, Opened: all.Opened, Closed: all.Opened - all.Open, Messages: all.Messages,
		Latency: r.clients.TakeLatency().Quantiles(),
		Server:  now.server, Client: now.client, Kernel: now.kernel - min(now.kernel, r.baseline.kernel),
	})
	r.progress.update(r.res.Samples, phase, &all, passed, of)
}

// recordCosts records the cost of the connections held since from.
func (r *run) recordCosts(from measurement) {
	now := r.whileHeld
	n := float64(now.open)
	if now.open < minConnectionsForCosts { // the cost of the processes would dominate
		return
	}
	per := func(now, before uint64) float64 { return (float64(now) - float64(before)) / n }
	r.res.Costs = &result.Costs{
		Connections: now.open,
		ClientBytes: per(now.client.Anonymous, r.baseline.client.Anonymous),
		KernelBytes: per(now.kernel, r.baseline.kernel),
		BothEnds:    len(r.serverPids()) > 0,
		ClientCPU:   now.client.CPU - from.client.CPU,
	}
	if len(r.serverPids()) > 0 {
		r.res.Costs.ServerBytes = per(now.server.Anonymous, r.baseline.server.Anonymous)
		r.res.Costs.ServerCPU = now.server.CPU - from.server.CPU
	}
	if bare := r.opt.bareCosts; bare != nil {
		r.res.Costs.BareBytes = bare.ServerBytes
	}
}

// minConnectionsForCosts is the lowest number of connections with costs in the result.
const minConnectionsForCosts = 1000
