package idle

import (
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

// firstPing is the default of Heartbeat.Jitter. NATS has the same.
const firstPing = 0.2

// maxGrace is the default of OutageGrace: the longest time between two retransmissions of a Linux
// kernel (TCP_RTO_MAX).
const maxGrace = 2 * time.Minute

// limits are the Config as it is judged by, with the idle timeouts of one connection or of those that
// have none of their own. Immutable.
type limits struct {
	verdict.Limits
	own     Timeouts // as they were set
	version int64    // of the settings
}

// A scale is what ScaleTimeouts was given. The zero scale changes nothing.
type scale struct {
	by    float64       // from 0 to 1
	least time.Duration // to which by 1 brings them
}

// of returns the timeout to which a scale brings one.
func (s scale) of(d time.Duration) time.Duration {
	if d <= s.least {
		return d
	}
	return d - verdict.Share(d-s.least, s.by)
}

// limits returns what a Config that was checked is judged by, with the given idle timeouts.
func (cfg *Config) limits(t Timeouts) verdict.Limits {
	h := &cfg.Heartbeat
	lim := verdict.Limits{
		Read: t.Read, Write: t.Write, All: t.All, Jitter: cfg.Jitter,
		FirstByte: cfg.FirstByteTimeout, Handshake: cfg.HandshakeTimeout, Stall: cfg.WriteStallTimeout,
		Output: verdict.Output(cfg.OutputLimit), Rate: verdict.Rate(cfg.MinRate),
		Heartbeat: verdict.Heartbeat{
			Interval: h.Interval, Retry: h.Retry, MaxMissed: h.MaxMissed, Jitter: max(h.Jitter, 0), PongsOnly: h.IsPong != nil,
		},
		Age: cfg.MaxAge, AgeGrace: cfg.MaxAgeGrace,
		Grace: cfg.OutageGrace, Hold: cfg.OutageGrace,
		Tick: cfg.Tick, Horizon: cfg.horizon(),
	}
	if t.NoHeartbeat {
		lim.Heartbeat = verdict.Heartbeat{}
	}
	if cfg.OutageGrace == 0 {
		lim.Grace, lim.Hold = maxGrace, maxTimeout
	}
	return lim
}

// asks reports whether the kernel has to be asked about a connection although none of its deadlines
// has passed: its output waits, or a window of MinRate begins.
func (lim *limits) asks(f *verdict.Facts, now time.Duration) bool {
	return f.OutputWaits() && lim.PollOutput() > 0 || f.RatedSince != 0 && !f.Counting && f.RatedSince <= now
}

// shortestIdle returns the shortest silence after which a connection may be closed, 0 if there is
// none.
func (lim *limits) shortestIdle() time.Duration {
	return shorter(shorter(lim.Read, lim.All), lim.Heartbeat.Interval)
}

// shorter returns the shorter of two limits, of which 0 is none.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// ownTimeouts are the bounds of all that SetTimeouts was given. Safe for concurrent use.
type ownTimeouts struct{ shortest, longest atomic.Int64 }

func (o *ownTimeouts) add(t Timeouts) {
	for {
		old := o.shortest.Load()
		least := int64(shorter(time.Duration(old), shorter(t.Read, t.All)))
		if least == old || o.shortest.CompareAndSwap(old, least) {
			break
		}
	}
	for {
		old := o.longest.Load()
		most := max(old, int64(t.Read), int64(t.All))
		if most == old || o.longest.CompareAndSwap(old, most) {
			return
		}
	}
}

// extend returns a rule that is right for connections with timeouts of their own as well.
func (o *ownTimeouts) extend(rule outage.Rule) outage.Rule {
	longest := time.Duration(o.longest.Load())
	rule.Shortest = shorter(rule.Shortest, time.Duration(o.shortest.Load()))
	rule.Longest, rule.Memory = max(rule.Longest, longest), max(rule.Memory, longest)
	return rule
}
