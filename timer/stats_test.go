package timer

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Stats holds the locks of all shards, so that no Timeout is counted twice that moves to another.
func TestStatsAreOfOneInstant(t *testing.T) {
	timer := newTestTimer(t, Config{})
	first, last := timer.core.shards[0], timer.core.shards[len(timer.core.shards)-1]
	last.mu.Lock()
	var reading sync.WaitGroup
	reading.Go(func() { timer.Stats() })
	require.Eventually(t, func() bool {
		if first.mu.TryLock() {
			first.mu.Unlock()
			return false
		}
		return true
	}, 10*time.Second, time.Millisecond, "the first shard is not locked while Stats waits for the last one")
	last.mu.Unlock()
	reading.Wait()
}
