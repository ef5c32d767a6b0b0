package idle

import (
	"testing"
	"time"
)

// TestAPeerThatNeverSendsIsTooSlow sends no byte at all, with a message open from the beginning on.
func TestAPeerThatNeverSendsIsTooSlow(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{MinRate: MinRate{BytesPerSecond: 500, Window: limitOf, Grace: limitOf, Always: true}}, nil)
	began := time.Now()
	dial(t, s.addr)
	s.requireReaped(t, began, 2*limitOf, BelowMinRate)
}
