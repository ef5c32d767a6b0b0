package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
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
func (r *run) phase(name string, atMost time.Duration, until func(result.Counts) bool, commands ...load.Command) bool {
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
		if passed >= atMost || until != nil && until(r.now) {
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
	done := r.phase(opening, atMost, func(now result.Counts) bool {
		all := now.Total()
		return all.Opened+all.OpenFailed >= want || isRefused(now)
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
func isRefused(now result.Counts) bool {
	all := now.Total()
	return all.Opened == 0 && all.OpenFailed >= 200
}

// hold waits while the connections are served, and records their cost. It ends early when none is
// left.
func (r *run) hold(name string, d time.Duration) bool {
	from := r.measure()
	on := r.phase(name, d, func(now result.Counts) bool { return now.Total().Open == 0 })
	r.recordCosts(from, r.measure())
	return on
}

// awaitReaping silences the heartbeats, and waits until the target has closed their connections, or
// should have long ago.
func (r *run) awaitReaping() bool {
	if r.opt.targetTimeout() == 0 {
		return r.running()
	}
	gone := func(now result.Counts) bool { return openOf(now, beating) == 0 }
	return r.phase(silent, r.opt.targetTimeout()+2*r.opt.Tick+closeGrace, gone, load.Command{Silence: beating})
}

// openOf returns the number of open connections of a group.
func openOf(now result.Counts, group string) (n uint64) {
	for _, g := range now.Groups {
		if g.Name == group {
			n += g.Open
		}
	}
	return n
}
