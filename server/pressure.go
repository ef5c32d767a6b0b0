package server

import (
	"context"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/logging"
)

const (
	// At pressureFrom idle timeouts begin to shrink, and at pressureTo they are shortest, as
	// Envoy's overload manager is usually configured for reduce_timeouts.
	pressureFrom = 0.85
	pressureTo   = 0.95
	// pressureSlack is the drop of the pressure after which timeouts grow again.
	pressureSlack = 0.02
	// scaleStep is the step in which timeouts change: each change costs a pass over all
	// connections.
	scaleStep = 0.1
	// pressureInterval is the interval at which the pressure is measured.
	pressureInterval = 250 * time.Millisecond
)

// Pressure is the share of each resource that is in use: 0 is nothing, or not known; 1 is all.
type Pressure struct {
	Connections float64 // of Config.Idle.MaxConnections
	Descriptors float64 // of the number at which accepting is paused
	Heap        float64 // live bytes, of GOMEMLIMIT
	Memory      float64 // of the container, buffers of sockets included, without the cache of files
}

// Highest returns the highest of the shares.
func (p Pressure) Highest() float64 { return max(p.Connections, p.Descriptors, p.Heap, p.Memory) }

func (p Pressure) name() string {
	switch p.Highest() {
	case p.Connections:
		return "connections"
	case p.Descriptors:
		return "descriptors"
	case p.Heap:
		return "heap"
	default:
		return "memory"
	}
}

// pressure returns the pressure with a number of open connections and their limit.
func (set *setup) pressure(connections, limit int) (p Pressure) {
	if limit > 0 {
		p.Connections = min(float64(connections)/float64(limit), 1) // the limit may have been lowered
	}
	if b := set.budget; b.allowed > 0 {
		// More are in use if there are gaps above the lowest free one.
		used := max(lowestFree(), b.inUse+connections)
		p.Descriptors = min(float64(used)/float64(b.full()), 1)
	}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 && limit > 0 {
		// The live heap at the last collection: garbage is no pressure.
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		p.Heap = float64(live[0].Value.Uint64()) / float64(limit)
	}
	for _, g := range set.groups {
		p.Memory = max(p.Memory, g.used(os.DirFS("/")))
	}
	return p
}

// A timeoutScale follows the pressure with hysteresis. It is 0 while timeouts are as configured and
// 1 while they are shortest.
type timeoutScale float64

// follow changes the scale for a pressure and reports whether it has changed.
func (s *timeoutScale) follow(pressure float64) (changed bool) {
	before := *s
	*s = min(max(*s, scaleAt(pressure)), scaleAt(pressure+pressureSlack))
	return *s != before
}

// scaleAt returns the scale for a pressure, rounded to steps.
func scaleAt(pressure float64) timeoutScale {
	scale := min(max((pressure-pressureFrom)/(pressureTo-pressureFrom), 0), 1)
	return timeoutScale(math.Round(scale/scaleStep) * scaleStep)
}

// scaleTimeouts shortens idle timeouts to least while there is pressure, until the context is done.
func (set *setup) scaleTimeouts(ctx context.Context, r *idle.Reaper, least time.Duration, log *slog.Logger) {
	var scale, logged timeoutScale
	var warning logging.Limiter
	for sleep(ctx, pressureInterval) {
		p := set.pressure(r.Connections(), r.Config().MaxConnections)
		if scale.follow(p.Highest()) {
			_ = r.ScaleTimeouts(float64(scale), least) // Config.check has checked least
		}
		if scale != logged && warning.Allow() {
			log.Warn("pressure changes idle timeouts", "squeeze", float64(scale), "to", least, "pressure", p.Highest(), "of", p.name())
			logged = scale
		}
	}
}
