package idle

import "github.com/idlewheel/idlewheel/internal/ratelog"

// warnings limit each warning of a Reaper to one a second.
type warnings struct {
	posting, crowded, keepalive, closing, hold, outage ratelog.Limiter
}

// warn logs a warning, unless it was logged less than a second ago.
func (r *Reaper) warn(w *ratelog.Limiter, text string, args ...any) {
	if w.AllowAt(r.clock.Elapsed()) {
		r.settings.Load().cfg.Logger.Warn(text, args...)
	}
}
