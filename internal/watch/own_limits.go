package watch

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// A limitsTable holds the limits of the connections of a shard by number. Connections with the same
// limits of their own share a number. Number 0 is for connections without.
type limitsTable struct {
	all    []*Limits
	uses   []uint32 // connections that use each number
	index  map[reap.ConnLimits]uint16
	unused []uint16
}

const maxLimits = 1<<16 - 1

// at returns the limits with a number under the given settings. There may be thousands, so limits
// of older settings are replaced one by one, at their next use.
func (t *limitsTable) at(i uint16, set *Settings) *Limits {
	if i == 0 {
		return set.Common
	}
	lim := t.all[i]
	if lim.version != set.Version {
		lim = set.limitsOf(lim.Own)
		t.all[i] = lim
	}
	return lim
}

// take returns the number of the limits of some connections, and counts a use of it.
func (t *limitsTable) take(set *Settings, own reap.ConnLimits) (uint16, error) {
	if own == (reap.ConnLimits{}) {
		return 0, nil
	}
	i, ok := t.index[own]
	if !ok {
		n, err := t.free()
		if err != nil {
			return 0, fmt.Errorf("%s: %w", set.form.Package, err)
		}
		if t.index == nil {
			t.index = make(map[reap.ConnLimits]uint16)
		}
		i = n
		t.index[own] = i
		t.all[i] = set.limitsOf(own)
	}
	t.uses[i]++
	return i, nil
}

// free returns an unused number.
func (t *limitsTable) free() (uint16, error) {
	if len(t.all) == 0 {
		t.all, t.uses = make([]*Limits, 1), make([]uint32, 1) // number 0
	}
	if n := len(t.unused); n > 0 {
		i := t.unused[n-1]
		t.unused = t.unused[:n-1]
		return i, nil
	}
	if len(t.all) > maxLimits {
		return 0, fmt.Errorf("connections have more than %d different limits: round them", maxLimits)
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
		delete(t.index, t.all[i].Own)
		t.unused = append(t.unused, i)
	}
}

// An extreme has the shortest idle timeout and the longest limit of many connections. Safe for
// concurrent use.
type extreme struct{ shortest, longest atomic.Int64 }

// add adds the limits of a connection.
func (o *extreme) add(lim *verdict.Limits) {
	replace(&o.shortest, lim.ShortestIdle(), func(old, d time.Duration) bool { return old == 0 || d < old })
	replace(&o.longest, lim.Longest(), func(old, d time.Duration) bool { return d > old })
}

// replace replaces a value by one that is not 0, if that is more extreme.
func replace(v *atomic.Int64, d time.Duration, isMore func(old, d time.Duration) bool) {
	for old := v.Load(); d > 0 && isMore(time.Duration(old), d) && !v.CompareAndSwap(old, int64(d)); {
		old = v.Load()
	}
}

// extend returns a rule for connections with limits of their own as well.
func (o *extreme) extend(rule outage.Rule) outage.Rule {
	longest := time.Duration(o.longest.Load())
	rule.Shortest = verdict.Shorter(rule.Shortest, time.Duration(o.shortest.Load()))
	rule.Longest, rule.Memory = max(rule.Longest, longest), max(rule.Memory, longest)
	return rule
}
