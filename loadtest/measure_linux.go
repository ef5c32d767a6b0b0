package main

import (
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A reading is what the processes and the system use at a moment.
type measurement struct {
	server, client result.Usage
	kernel         uint64
	open           uint64
}

// read returns what is used now.
func (r *run) measure(open uint64) measurement {
	now := measurement{open: open}
	now.server, now.client = sumUsage(r.serverPids()), sumUsage(r.clients.Pids())
	now.kernel, _ = machine.KernelMemory() // in a container it may not be known
	return now
}

// serverPids returns the processes of the target, as far as they are known.
func (r *run) serverPids() []int { return append(r.servers.Pids(), r.opt.pids...) }

func sumUsage(pids []int) (sum result.Usage) {
	for _, pid := range pids {
		if of, err := machine.ProcessUsage(pid); err == nil { // otherwise it has just ended, which is noticed elsewhere
			sum.RSS += of.RSS
			sum.Anonymous += of.Anonymous
			sum.CPU += of.CPU
		}
	}
	return sum
}

// sample shows how things stand, and keeps it once a second.
func (r *run) sample(phase string, report load.Report, passed, of time.Duration) {
	if time.Since(r.sampled) < sampleEvery {
		return
	}
	r.sampled = time.Now()
	all := sumOf(report)
	now := r.measure(all.Open)
	r.res.Samples = append(r.res.Samples, result.Sample{
		At: time.Since(r.began), Open: all.Open, Opened: all.Opened, Closed: all.Opened - all.Open, Messages: all.Messages,
		Server: now.server, Client: now.client, Kernel: now.kernel - min(now.kernel, r.baseline.kernel),
	})
	r.progress.update(r.res.Samples, phase, &all, passed, of)
}

// costs notes what the connections cost that were held from one moment to another.
func (r *run) recordCosts(from measurement) {
	now := r.whileHeld
	n := float64(now.open)
	if now.open < minConnectionsForCosts { // it would be what a process costs
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

// minConnectionsForCosts is for how many connections costs are told.
const minConnectionsForCosts = 1000
