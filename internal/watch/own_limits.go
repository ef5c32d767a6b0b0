package watch

import (
	"fmt"
	"math/bits"
	"time"

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
		i = n
		t.index[own] = i
		t.all[i] = set.limitsOf(own)
	}
	t.uses[i]++
	return i, nil
}

func (t *limitsTable) free() (uint16, error) {
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
		t.all[i] = nil
		t.unused = append(t.unused, i)
	}
}

// An idleCount counts connections by their shortest idle timeout, in powers of two.
type idleCount struct {
	buckets [64]struct {
		n     int
		least time.Duration
	}
	all int
}

// add counts a connection, unless it has no idle timeout.
func (i *idleCount) add(timeout time.Duration) {
	if timeout == 0 {
		return
	}
	b := &i.buckets[bits.Len64(uint64(timeout))]
	b.n++
	b.least = verdict.Shorter(b.least, timeout)
	i.all++
}

// half returns the timeout that half of the connections have or exceed, to a factor of two, or 0 if
// there are none.
func (i *idleCount) half() time.Duration {
	left := i.all
	for _, b := range i.buckets {
		if left -= 2 * b.n; b.n > 0 && left <= 0 {
			return b.least
		}
	}
	return 0
}

// A usual is the idle timeout of half of the connections in the shard that had most of them.
type usual struct {
	timeout time.Duration // 0 if unknown
	shard   uint32
	of      int // connections of the shard
}

// note takes note of the connections of a shard. It reports whether the time has changed.
func (u *usual) note(shard uint32, count *idleCount) (changed bool) {
	timeout := count.half()
	if timeout == 0 || count.all < u.of && shard != u.shard {
		u.of -= u.of/8 + 1 // it may have lost its connections
		return false
	}
	changed = timeout != u.timeout
	*u = usual{timeout, shard, count.all}
	return changed
}
