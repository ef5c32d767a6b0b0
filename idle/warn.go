package idle

import (
	"sync/atomic"
	"time"
)

// A warning is one that is logged at most once a second, whoever has reason for it. Safe for concurrent use.
type warning struct {
	text string
	last atomic.Int64 // when it was logged, as a duration since the clock of the Reaper began
}

// warnings are those of a Reaper.
type warnings struct {
	posting, crowded, keepalive, closing warning
}

func (w *warnings) init() {
	w.posting.text = "posting tasks to event loops"
	w.crowded.text = "too many connections of one event loop: one more is not watched"
	w.keepalive.text = "setting keepalive"
	w.closing.text = "closing a connection"
}

// warn logs a warning, unless it was logged less than a second ago.
func (r *Reaper) warn(w *warning, args ...any) {
	now, last := int64(r.clock.elapsed()), w.last.Load()
	if last != 0 && now-last < int64(time.Second) || !w.last.CompareAndSwap(last, max(now, 1)) {
		return
	}
	r.settings.Load().cfg.Logger.Warn(w.text, args...)
}
