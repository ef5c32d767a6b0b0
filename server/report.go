package server

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/prom"
	"github.com/idlewheel/idlewheel/settings"
)

const (
	// reportInterval is the time between two lines of the log about reaped connections.
	reportInterval = 10 * time.Second
	// rejectedInterval is the time between two lines of the log about rejected connections.
	rejectedInterval = time.Second
)

// logQueues returns the queue of the Logger, and that of the Reaper if it is another one.
func (s *Server) logQueues() []*logging.Queue {
	queues := []*logging.Queue{logging.Of(s.cfg.Logger), logging.Of(s.reaper.Config().Logger)}
	return slices.Compact(queues)
}

// flushLogs waits until all records are written, but at most a second for each queue.
func (s *Server) flushLogs() {
	for _, queue := range s.logQueues() {
		queue.Flush()
	}
}

// Reloaded logs and counts a reload of settings, for [settings.Watcher.Run]. The error is the
// reason why the settings were not applied, nil if they were.
func (s *Server) Reloaded(err error) {
	if err != nil {
		s.reloads.failed.Add(1)
		s.cfg.Logger.Error("the limits were not reloaded", "error", settings.Explain(err, ""))
		return
	}
	s.reloads.done.Add(1)
	s.cfg.Logger.Info("the limits were reloaded")
}

// logStart logs the configuration, and applies the limit of connections.
func (s *Server) logStart() {
	limit, why := s.Limit()
	cfg := s.reaper.Config()
	cfg.MaxConnections = limit
	s.cfg.Logger.Info("serving", "config", s.cfg, "idle", cfg, "limit", limit, "because", why)
	setMaxConnections(s.reaper, limit)
}

// A reporter logs what has happened since its last line: connections that were reaped, would have
// been reaped, or were rejected.
type reporter struct {
	log      *slog.Logger
	last     idle.Stats
	rejected uint64 // by the admission, as logged
	refused  uint64 // by the Reaper, as logged
}

// run logs rejected connections every second and reaped ones every ten seconds, and both at the
// end.
func (r *reporter) run(ctx context.Context, s *Server) {
	for n := 1; ; n++ {
		more := sleep(ctx, rejectedInterval)
		now := s.reaper.Stats()
		rejected, why := s.admission.total()
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
