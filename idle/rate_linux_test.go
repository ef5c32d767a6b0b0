package idle

import (
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/reap"
)

// TestAPeerThatNeverSendsIsTooSlow sends no byte at all. A message is open from the beginning.
func TestAPeerThatNeverSendsIsTooSlow(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{MinRate: MinRate{BytesPerSecond: 500, Window: limitOf, Grace: limitOf, Always: true}}, nil)
	began := time.Now()
	dial(t, s.addr)
	s.requireReaped(t, began, 2*limitOf, reap.BelowMinRate)
}
