package watch

import (
	"math/bits"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

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

// usual returns the timeout that half of the connections have or exceed, to a factor of two, or 0
// if there are none.
func (i *idleCount) usual() time.Duration {
	left := i.all
	for _, b := range i.buckets {
		if left -= 2 * b.n; b.n > 0 && left <= 0 {
			return b.least
		}
	}
	return 0
}
