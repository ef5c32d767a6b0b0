package fair

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOnlyAFairFailureCounts tries tests that fail at first, on machines that are late.
func TestOnlyAFairFailureCounts(t *testing.T) {
	for name, c := range map[string]struct {
		failures  int
		late      []time.Duration
		busy      bool // each attempt that fails finds out that the machine is busy
		attempts  int
		fails     bool
		isSkipped bool
	}{
		"passes":                         {failures: 0, late: []time.Duration{0}, attempts: 1},
		"passes on a busy machine":       {failures: 0, late: []time.Duration{Late}, attempts: 1},
		"fails":                          {failures: 1, late: []time.Duration{Late - 1}, attempts: 1, fails: true},
		"fails on a busy machine":        {failures: 2, late: []time.Duration{Late, Late, 0}, attempts: 3},
		"fails when the machine is free": {failures: 4, late: []time.Duration{Late, Late, 0}, attempts: 3, fails: true},
		"always fails on a busy machine": {failures: 9, late: []time.Duration{Late, Late, Late, Late}, attempts: 4, isSkipped: true},
		"finds out":                      {failures: 2, late: []time.Duration{0, 0, 0}, busy: true, attempts: 3},
		"always finds out":               {failures: 9, late: []time.Duration{0, 0, 0, 0}, busy: true, attempts: 4, isSkipped: true},
	} {
		t.Run(name, func(t *testing.T) {
			var tried, cleaned int
			outer := &outer{attempt: attempt{TB: t}}
			outer.run(func(testing.TB) {
				try(outer, func(t testing.TB) {
					tried++
					t.Cleanup(func() { cleaned++ })
					t.Cleanup(func() { require.Equal(t, tried-1, cleaned, "the last one comes first") })
					if c.busy && tried <= c.failures {
						Busy(t, "attempt %d", tried)
					}
					require.Greater(t, tried, c.failures)
				}, func() func() time.Duration {
					return func() time.Duration { return c.late[tried-1] }
				})
			})
			require.Equal(t, c.attempts, tried)
			require.Equal(t, tried, cleaned)
			require.Equal(t, c.fails, outer.Failed())
			require.Equal(t, c.isSkipped, outer.isSkipped)
		})
	}
}

// TestASkippedAttemptEndsItsMeasurement skips a test in its attempt. TestMain finds a goroutine
// that is left.
func TestASkippedAttemptEndsItsMeasurement(t *testing.T) {
	t.Run("skipped", func(t *testing.T) {
		Try(t, func(t testing.TB) { t.Skip("on purpose") })
		t.Error("Try has returned")
	})
}

// An outer test may fail or be skipped without an effect on the test that runs it.
type outer struct {
	attempt
	isSkipped bool
}

func (o *outer) Skipf(string, ...any) {
	o.isSkipped = true
	runtime.Goexit()
}
