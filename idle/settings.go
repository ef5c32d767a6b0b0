package idle

import (
	"fmt"
	"time"

	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

// Settings are a Config that was checked, and what follows from it. Immutable: Update makes others.
type settings struct {
	cfg     Config
	version int64 // counts from 1
	limits  *limits
	reset   [reasons]bool
	now     overlay
	before  *settings // without a before of their own; nil for the first ones
	since   time.Duration
	rule    outage.Rule
}

// An overlay is what changes the limits of a Config for a time, or for good.
type overlay struct {
	drain verdict.Drain
	scale scale
}

func newSettings(cfg Config, version int64, now overlay) *settings {
	return makeSettings(cfg, version, now, nil, 0)
}

// next returns the settings that follow from an instant on.
func (set *settings) next(cfg Config, now overlay, at time.Duration) *settings {
	before := *set
	before.before = nil
	return makeSettings(cfg, set.version+1, now, &before, at)
}

func makeSettings(cfg Config, version int64, now overlay, before *settings, since time.Duration) *settings {
	if now.drain != (verdict.Drain{}) {
		cfg.ObserveOnly = false // it spares connections that the Reaper decides about; a drain is told to close
	}
	set := &settings{cfg: cfg, version: version, now: now, before: before, since: since}
	set.limits = set.newLimits(cfg.timeouts())
	if before != nil { // connections without timeouts of their own had others
		set.limits.Before = &before.newLimits(before.cfg.timeouts()).Limits
	}
	set.rule = outage.Rule{
		Tick: cfg.Tick, Memory: max(cfg.horizon(), cfg.longest()), Hold: cfg.OutageGrace >= 0,
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
	lim.Drain = set.now.drain
	for _, d := range []*time.Duration{&lim.Read, &lim.Write, &lim.All} {
		*d = max(set.now.scale.of(*d), min(*d, set.cfg.Tick))
	}
	if set.before != nil {
		lim.Before, lim.Since = &set.before.newLimits(timeouts).Limits, set.since
	}
	return lim
}

// A limitsTable holds the limits of the connections of one loop: number 0 is of those that have no timeouts of their own,
// each other number of those that have the same ones.
type limitsTable struct {
	all    []*limits
	uses   []uint32 // of each, how many connections have it
	index  map[Timeouts]uint16
	unused []uint16
}

const maxLimits = 1<<16 - 1

// at returns the limits with a number, by the given settings. Those of other settings are made anew
// when they are used next, since there may be thousands.
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

// take returns the number of the limits with the given timeouts.
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

// free returns a number that no connection has.
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
		return 0, fmt.Errorf("idle: more than %d different timeouts of connections of one event loop: round them", maxLimits)
	}
	t.all, t.uses = append(t.all, nil), append(t.uses, 0)
	return uint16(len(t.all) - 1), nil
}

// put gives a number back.
func (t *limitsTable) put(i uint16) {
	if i == 0 {
		return
	}
	if t.uses[i]--; t.uses[i] == 0 {
		delete(t.index, t.all[i].own)
		t.unused = append(t.unused, i)
	}
}
