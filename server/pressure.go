package server

import (
	"context"
	"log/slog"
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

// A pressure is how much of each resource is in use, from 0 to 1.
type pressure struct {
	connections, descriptors, heap float64
}

func (p pressure) highest() float64 { return max(p.connections, p.descriptors, p.heap) }

// name returns which resource it is that is used most.
func (p pressure) name() string {
	switch p.highest() {
	case p.connections:
		return "connections"
	case p.descriptors:
		return "descriptors"
	default:
		return "heap"
	}
}

// pressure measures it.
func (h *host) pressure() (p pressure) {
	if h.limit > 0 {
		p.connections = float64(h.Connections()) / float64(h.limit)
	}
	if h.full > 0 {
		p.descriptors = 1
		if fd, ok := freeDescriptor(); ok {
			p.descriptors = float64(fd) / float64(h.full)
		}
	}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 && limit > 0 {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}} // as of the last collection: what lies about until the next is no pressure
		metrics.Read(live)
		p.heap = float64(live[0].Value.Uint64()) / float64(limit)
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
	for sleep(ctx, pressureLook) {
		p := h.pressure()
		by, changed := s.follow(p.highest())
		if !changed {
			continue
		}
		if err := h.Squeeze(by, least); err != nil {
			panic("BUG: " + err.Error())
		}
		h.log.Log(ctx, slog.LevelWarn, "pressure changes idle timeouts", "squeeze", by, "to", least, "pressure", p.highest(), "of", p.name())
	}
	_ = h.Squeeze(0, 0) // another engine may follow
}
