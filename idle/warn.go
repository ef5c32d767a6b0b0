package idle

import (
	"sync/atomic"
	"time"
)

// A warning is when one was logged last, as a duration since the clock of the Reaper began: each is logged at most once a second, whoever
// has reason for it. Safe for concurrent use.
type warning struct{ last atomic.Int64 }

// warnings are those of a Reaper.
type warnings struct {
	posting, crowded, keepalive, closing, hold, outage warning
}

// warn logs a warning, unless it was logged less than a second ago.
func (r *Reaper) warn(w *warning, text string, args ...any) {
	now, last := int64(r.clock.Elapsed()), w.last.Load()
	if last != 0 && now-last < int64(time.Second) || !w.last.CompareAndSwap(last, max(now, 1)) {
		return
	}
	r.settings.Load().cfg.Logger.Warn(text, args...)
}
