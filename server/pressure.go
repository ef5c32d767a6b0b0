package server

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// pressureFrom and pressureTo are the pressure at which idle timeouts begin to shrink and the one at which they are shortest, as
	// Envoy's overload manager is usually set for reduce_timeouts.
	pressureFrom = 0.85
	pressureTo   = 0.95
	// pressureSlack is how much less it must be for timeouts to grow again.
	pressureSlack = 0.02
	// squeezeStep is the step in which they change: each costs a pass over all connections.
	squeezeStep = 0.1
	// pressureLook is how often the pressure is measured.
	pressureLook = 250 * time.Millisecond
)

// Pressure is how much of each resource is in use: 0 is nothing, and not known; 1 is all.
type Pressure struct {
	Connections float64 // of Config.MaxConnections
	Descriptors float64 // of the number at which accepting is paused
	Heap        float64 // live bytes, of GOMEMLIMIT
}

// Highest returns that of the resource that is used most.
func (p Pressure) Highest() float64 { return max(p.Connections, p.Descriptors, p.Heap) }

// name returns which resource that is.
func (p Pressure) name() string {
	switch p.Highest() {
	case p.Connections:
		return "connections"
	case p.Descriptors:
		return "descriptors"
	default:
		return "heap"
	}
}

// pressure measures it.
func (h *host) pressure() (p Pressure) {
	if h.limit > 0 {
		p.Connections = float64(h.Connections()) / float64(h.limit)
	}
	if h.full > 0 {
		p.Descriptors = 1
		if fd, ok := freeDescriptor(); ok { // as many are in use at least; more, where some below the highest were given back
			p.Descriptors = float64(max(fd, h.taken+h.Connections())) / float64(h.full)
		}
	}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 && limit > 0 {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}} // as of the last collection: what lies about until the next is no pressure
		metrics.Read(live)
		p.Heap = float64(live[0].Value.Uint64()) / float64(limit)
	}
	return p
}

// A squeezer follows the pressure with hysteresis.
type squeezer struct{ by float64 }

// follow returns by how much timeouts are to be squeezed, and whether that has changed.
func (s *squeezer) follow(p float64) (by float64, changed bool) {
	was := s.by
	if more := squeezeAt(p); more > s.by {
		s.by = more
	} else if less := squeezeAt(p + pressureSlack); less < s.by {
		s.by = less
	}
	return s.by, s.by != was
}

// squeezeAt returns how much a pressure squeezes, in steps.
func squeezeAt(p float64) float64 {
	by := min(max((p-pressureFrom)/(pressureTo-pressureFrom), 0), 1)
	return math.Round(by/squeezeStep) * squeezeStep
}

// relieve shortens idle timeouts to least while there is pressure.
func (h *host) relieve(ctx context.Context, least time.Duration) {
	var s squeezer
	var said time.Time
	unsaid := false
	for sleep(ctx, pressureLook) {
		p := h.pressure()
		by, changed := s.follow(p.Highest())
		if changed {
			if err := h.ScaleTimeouts(by, least); err != nil {
				panic("BUG: " + err.Error())
			}
			unsaid = true
		}
		if unsaid && time.Since(said) >= warnEvery {
			h.log.Warn("pressure changes idle timeouts", "squeeze", by, "to", least, "pressure", p.Highest(), "of", p.name())
			said, unsaid = time.Now(), false
		}
	}
	_ = h.ScaleTimeouts(0, 0) // another engine may follow
}
