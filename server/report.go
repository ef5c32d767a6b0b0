package server

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/prom"
)

const (
	// reportInterval is the time between two lines of the log about reaped connections.
	reportInterval = 10 * time.Second
	// rejectedInterval is the time between two lines of the log about rejected connections.
	rejectedInterval = time.Second
)

// A reporter logs what has happened since its last line: connections that were reaped, would have
// been reaped, or were rejected.
type reporter struct {
	log       *slog.Logger
	stats     func() idle.Stats // of the Reaper
	admission *admission

	last     idle.Stats // as logged
	rejected uint64     // by the admission, as logged
	refused  uint64     // by the Reaper, as logged
}

// run logs rejected connections every second and reaped ones every ten seconds, and both at the
// end.
func (r *reporter) run(ctx context.Context) {
	for n := 1; ; n++ {
		more := sleep(ctx, rejectedInterval)
		now := r.stats()
		rejected, why := r.admission.total()
		r.logRejected(rejected, why, &r.rejected)
		r.logRejected(now.Refused, "the limit of connections is reached, or the server drains", &r.refused)
		if !more || n%int(reportInterval/rejectedInterval) == 0 {
			r.logReaped(now)
		}
		if !more {
			return
		}
	}
}

// logRejected logs how many connections were rejected, if any were, and the reason for the last of
// them.
func (r *reporter) logRejected(now uint64, why string, logged *uint64) {
	if n := now - *logged; n > 0 {
		r.log.Warn("connections were rejected", "number", n, "last", why)
		*logged = now
	}
}

// logReaped logs how many connections were reaped, and would have been, if there were any.
func (r *reporter) logReaped(now idle.Stats) {
	if n := now.Reaped.Total() - r.last.Reaped.Total(); n > 0 {
		attrs := []any{"number", n, "reasons", reasons(now.Reaped, r.last.Reaped), "connections", now.Connections}
		if late := now.Lateness.Count - r.last.Lateness.Count; late > 0 {
			mean := (now.Lateness.Sum - r.last.Lateness.Sum) / time.Duration(late)
			attrs = append(attrs, "late", mean.Round(time.Millisecond))
		}
		r.log.Info("reaped", attrs...)
	}
	if n := now.Observed.Total() - r.last.Observed.Total(); n > 0 {
		r.log.Info("would have reaped", "number", n, "reasons", reasons(now.Observed, r.last.Observed), "connections", now.Connections)
	}
	r.last = now
}

// reasons returns the number of connections for each reason since an earlier count.
func reasons(now, before idle.Counts) slog.Value {
	var some []slog.Attr
	for _, reason := range slices.Sorted(maps.Keys(now)) {
		if n := now[reason] - before[reason]; n > 0 {
			some = append(some, slog.Uint64(prom.Label(reason), n))
		}
	}
	return slog.GroupValue(some...)
}
