package idle

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

// settings are a checked Config and the values derived from it. Immutable: Update makes others.
type settings struct {
	cfg      Config
	version  int64 // counts from 1
	limits   *limits
	reset    [reasons]bool
	overlay  overlay
	previous *settings // the settings before, without their previous; nil at first
	since    mono.Time // the time at which these settings replaced previous
	rule     outage.Rule
}

// An overlay changes the limits of a Config until it is replaced.
type overlay struct {
	drain verdict.Drain
	scale scale
}

func newSettings(cfg Config, version int64, now overlay) *settings {
	return makeSettings(cfg, version, now, nil, 0)
}

// next returns the settings that replace these at an instant.
func (set *settings) next(cfg Config, now overlay, at mono.Time) *settings {
	before := *set
	before.previous = nil
	return makeSettings(cfg, set.version+1, now, &before, at)
}

func makeSettings(cfg Config, version int64, now overlay, before *settings, since mono.Time) *settings {
	if now.drain != (verdict.Drain{}) {
		cfg.ObserveOnly = false // Drain was called to close connections
	}
	set := &settings{cfg: cfg, version: version, overlay: now, previous: before, since: since}
	set.limits = set.newLimits(cfg.timeouts())
	if before != nil { // connections without timeouts of their own had the ones of before
		set.limits.Previous = &before.newLimits(before.cfg.timeouts()).Limits
	}
	set.rule = outage.Rule{
		Tick: cfg.Tick, Gap: outage.LeastGap(cfg.Tick, configtable.Idle.Shortest(&cfg).Value), Memory: max(cfg.horizon(), cfg.longest()), Hold: cfg.OutageGrace >= 0,
		Longest: cfg.longest(), Shortest: set.limits.shortestIdle(),
	}
	for _, k := range cfg.Reset {
		set.reset[k] = true
	}
	return set
}

// newLimits returns the limits of connections with the given idle timeouts.
func (set *settings) newLimits(timeouts Timeouts) *limits {
	lim := &limits{set.cfg.limits(timeouts), timeouts, set.version}
	lim.Drain = set.overlay.drain
	for _, d := range []*time.Duration{&lim.Read, &lim.Write, &lim.All} {
		*d = max(set.overlay.scale.of(*d), min(*d, set.cfg.Tick))
	}
	if set.previous != nil {
		lim.Previous, lim.Since = &set.previous.newLimits(timeouts).Limits, set.since
	}
	return lim
}

// A limitsTable holds the limits of the connections of one loop by number. Connections with the
// same timeouts of their own share a number. Number 0 is for connections without.
type limitsTable struct {
	all    []*limits
	uses   []uint32 // connections that use each number
	index  map[Timeouts]uint16
	unused []uint16
}

const maxLimits = 1<<16 - 1

// at returns the limits with a number under the given settings. There may be thousands, so limits
// of older settings are replaced one by one, at their next use.
func (t *limitsTable) at(i uint16, set *settings) *limits {
	if i == 0 {
		return set.limits
	}
	lim := t.all[i]
	if lim.version != set.version {
		lim = set.newLimits(lim.own)
		t.all[i] = lim
	}
	return lim
}

// take returns the number of the limits with the given timeouts, and counts a use of it.
func (t *limitsTable) take(set *settings, timeouts Timeouts) (uint16, error) {
	i, ok := t.index[timeouts]
	if !ok {
		n, err := t.free()
		if err != nil {
			return 0, err
		}
		if t.index == nil {
			t.index = make(map[Timeouts]uint16)
		}
		i = n
		t.index[timeouts] = i
		t.all[i] = set.newLimits(timeouts)
	}
	t.uses[i]++
	return i, nil
}

// free returns an unused number.
func (t *limitsTable) free() (uint16, error) {
	if len(t.all) == 0 {
		t.all, t.uses = make([]*limits, 1), make([]uint32, 1) // number 0
	}
	if n := len(t.unused); n > 0 {
		i := t.unused[n-1]
		t.unused = t.unused[:n-1]
		return i, nil
	}
	if len(t.all) > maxLimits {
		return 0, fmt.Errorf("idle: connections of one event loop have more than %d different timeouts: round them", maxLimits)
	}
	t.all, t.uses = append(t.all, nil), append(t.uses, 0)
	return uint16(len(t.all) - 1), nil
}

// put ends a use of a number.
func (t *limitsTable) put(i uint16) {
	if i == 0 {
		return
	}
	if t.uses[i]--; t.uses[i] == 0 {
		delete(t.index, t.all[i].own)
		t.unused = append(t.unused, i)
	}
}

// firstPing is the default of Heartbeat.Jitter. NATS has the same.
const firstPing = 0.2

// maxGrace is the default of OutageGrace: the longest time between two retransmissions of a Linux
// kernel (TCP_RTO_MAX).
const maxGrace = 2 * time.Minute

// limits are the limits of a Config in the form that verdicts use, with the idle timeouts of the
// Config or of some connections. Immutable.
type limits struct {
	verdict.Limits
	own     Timeouts // the idle timeouts before scaling
	version int64    // of the settings
}

// A scale holds the arguments of ScaleTimeouts. The zero scale changes nothing.
type scale struct {
	by    float64       // from 0 to 1
	least time.Duration // the timeouts if by is 1
}

// of returns the scaled timeout.
func (s scale) of(d time.Duration) time.Duration {
	if d <= s.least {
		return d
	}
	return d - verdict.Share(d-s.least, s.by)
}

// limits returns the limits of a checked Config with the given idle timeouts.
func (cfg *Config) limits(t Timeouts) verdict.Limits {
	h := &cfg.Heartbeat
	lim := verdict.Limits{
		Read: t.Read, Write: t.Write, All: t.All, Jitter: cfg.Jitter,
		FirstByte: cfg.FirstByteTimeout, Handshake: cfg.HandshakeTimeout, Stall: cfg.WriteStallTimeout,
		Output: verdict.Output(cfg.OutputLimit), Rate: verdict.Rate(cfg.MinRate),
		Heartbeat: verdict.Heartbeat{
			Interval: h.Interval, Retry: h.Retry, MaxMissed: h.MaxMissed,
			Jitter: max(h.Jitter, 0), PongsOnly: h.IsPong != nil,
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

// needsKernel reports whether the kernel must be asked about a connection before any deadline has
// passed: its output waits, or a window of MinRate begins.
func (lim *limits) needsKernel(f *verdict.Facts, now mono.Time) bool {
	return f.OutputWaits() && lim.PollOutput() > 0 || f.RatedSince != 0 && !f.Counting && f.RatedSince <= now
}

// shortestIdle returns the shortest silence after which a connection may be closed. If it is 0,
// there is none.
func (lim *limits) shortestIdle() time.Duration {
	return shorter(shorter(lim.Read, lim.All), lim.Heartbeat.Interval)
}

// shorter returns the shorter of two limits. A limit of 0 is none.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// ownTimeouts are the shortest and the longest of all SetTimeouts calls. Safe for concurrent use.
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

// extend returns a rule that includes connections with timeouts of their own.
func (o *ownTimeouts) extend(rule outage.Rule) outage.Rule {
	longest := time.Duration(o.longest.Load())
	rule.Shortest = shorter(rule.Shortest, time.Duration(o.shortest.Load()))
	rule.Longest, rule.Memory = max(rule.Longest, longest), max(rule.Memory, longest)
	return rule
}
