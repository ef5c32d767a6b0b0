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

// reportEvery is the time between two lines of the log about what was reaped.
const reportEvery = 10 * time.Second

// A reporter logs what was reaped, and what would have been, since it did so last, and who was refused for want of room.
type reporter struct {
	log     *slog.Logger
	last    idle.Stats
	refused uint64 // of which was logged
}

// report logs a line if there is anything to say.
func (r *reporter) report(now idle.Stats) {
	for _, of := range []struct {
		what     string
		now, was idle.Counts
		late     bool // it is known of them
	}{
		{"reaped", now.Reaped, r.last.Reaped, true},
		{"would have reaped", now.Observed, r.last.Observed, false},
	} {
		if n := of.now.Total() - of.was.Total(); n > 0 {
			attrs := []any{"number", n, "reasons", reasons(of.now, of.was), "connections", now.Connections}
			if of.late && now.Lateness.Count > r.last.Lateness.Count {
				attrs = append(attrs, "late", meanBetween(r.last.Lateness, now.Lateness))
			}
			r.log.Info(of.what, attrs...)
		}
	}
	r.last = now
}

// reasons returns how many there were for each reason.
func reasons(now, was idle.Counts) slog.Value {
	var some []slog.Attr
	for _, reason := range slices.Sorted(maps.Keys(now)) {
		if n := now[reason] - was[reason]; n > 0 {
			some = append(some, slog.Uint64(prom.Label(reason), n))
		}
	}
	return slog.GroupValue(some...)
}

// meanBetween returns the mean lateness of what was reaped meanwhile.
func meanBetween(was, now idle.LatenessStats) time.Duration {
	return idle.LatenessStats{Count: now.Count - was.Count, Sum: now.Sum - was.Sum}.Mean().Round(time.Millisecond)
}

// warn logs how many were refused, if any were.
func (r *reporter) warn(now idle.Stats) {
	if n := now.Refused - r.refused; n > 0 {
		r.log.Warn("connections were not let in", "number", n, "last", "as many are open as may be, or the server drains")
		r.refused = now.Refused
	}
}

// run reports every ten seconds, and at the end.
func (r *reporter) run(ctx context.Context, stats func() idle.Stats) {
	for n := 1; sleep(ctx, warnEvery); n++ {
		now := stats()
		if r.warn(now); n%int(reportEvery/warnEvery) == 0 {
			r.report(now)
		}
	}
	now := stats()
	r.warn(now)
	r.report(now)
}
