package idle

import (
	"fmt"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"

	"github.com/idlewheel/idlewheel/reap"
)

// reaped checks that the contract allows to close a connection for this reason.
func (l *simLife) reaped(e *ReapError) {
	w, t := l.w, &l.asked
	w.reaps[e.Reason]++
	if t.exempt && e.Reason != reap.Kicked {
		w.violate(l, "an exempt connection is not closed", "closed: "+e.Error())
		return
	}
	if t.ended && e.Reason != reap.Kicked {
		w.violate(l, "a connection that the peer has ended is left to gnet", "closed: "+e.Error())
		return
	}
	if why := l.early(e); why != "" {
		w.violate(l, why, fmt.Sprintf("closed at %v (judged %v): %v", w.now, l.judged, e))
		return
	}
	if e.Limit > 0 { // the hard limit has no deadline
		l.checkReason(e.Reason)
	}
}

// checkReason checks that no other limit was reached clearly before the limit of the reason.
func (l *simLife) checkReason(k Reason) {
	if k > verdict.LastDue || l.w.failure != nil {
		return
	}
	defer func(now simTruth) { l.now = now }(l.now)
	l.now = l.asked // as of the verdict
	mine, ok := l.soonest(k)
	if !ok {
		return
	}
	for other := verdict.First; other <= verdict.LastDue; other++ {
		since, limit := l.counts(other)
		if other == k || limit == 0 || other == reap.WriteIdle || verdict.IsIdle(other) && l.w.keeps {
			continue
		}
		if verdict.IsIdle(other) && l.w.now-since > 2048*l.w.cfg.Tick {
			continue // reads are not recorded that far back
		}
		if due := l.until(other) + l.w.slack() + l.delayed(other); due < mine {
			l.w.violate(l, fmt.Sprintf("the reason is the first limit, and %v was reached at %v", other, due),
				fmt.Sprintf("the reason is %v, reached at %v", k, mine))
			return
		}
	}
}

// soonest returns the earliest possible deadline of a limit without outages.
func (l *simLife) soonest(k Reason) (due time.Duration, ok bool) {
	t, cfg := &l.now, &l.w.cfg
	switch k {
	case reap.ReadIdle, reap.AllIdle:
		since, _ := l.activity(t, k)
		return since + l.limitOf(k), true
	case reap.NoFirstByte:
		return l.openedFrom + cfg.FirstByteTimeout, true
	case reap.NoHandshake:
		return l.openedFrom + cfg.HandshakeTimeout, true
	case reap.WriteStall:
		return max(t.waits, t.took) + cfg.WriteStallTimeout, true
	case reap.OverLimit:
		return t.softFrom + cfg.OutputLimit.SoftFor, true
	case reap.HeartbeatTimeout:
		return t.lastPing + cfg.Heartbeat.Retry, true
	case reap.MaxAge:
		return l.openedFrom + cfg.MaxAge*9/10, true
	case reap.Drained:
		return l.w.drain.at, true
	}
	return 0, false
}
