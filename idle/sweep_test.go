package idle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

func TestConnectionsWithoutOutputAskNoKernel(t *testing.T) {
	const n, stall = 100, 20 * time.Second
	for name, tc := range map[string]struct {
		cfg  Config
		want int // questions in an hour
	}{
		"hard limit":  {Config{OutputLimit: OutputLimit{Hard: 1 << 20}}, 0},
		"soft limit":  {Config{OutputLimit: OutputLimit{Soft: 1 << 20, SoftFor: 2 * time.Second}}, 0},
		"write stall": {Config{WriteStallTimeout: stall}, n * int(time.Hour/stall)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHandSite(t, newEcho(), tc.cfg)
			conns := s.open(n)
			s.pass(t, time.Hour)
			require.InDelta(t, tc.want, s.asked, float64(tc.want)/20, "once in WriteStallTimeout, for output that only the kernel holds")
			for _, c := range conns {
				s.OnClose(c, nil)
			}
		})
	}
}

// TestOutputThatAnotherGoroutineWritesIsFound: no event tells of it.
func TestOutputThatAnotherGoroutineWritesIsFound(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg    Config
		answer verdict.Evidence
		output int
		within time.Duration
	}{
		"hard limit":    {Config{OutputLimit: OutputLimit{Hard: 1000}}, verdict.Evidence{Queued: 1}, 1001, 1300 * time.Millisecond},
		"soft limit":    {Config{OutputLimit: OutputLimit{Soft: 1000, SoftFor: 4 * time.Second}}, verdict.Evidence{Queued: 1}, 1001, 5400 * time.Millisecond},
		"write stall":   {Config{WriteStallTimeout: 4 * time.Second}, verdict.Evidence{Queued: 1}, 1, 5400 * time.Millisecond},
		"in the kernel": {Config{WriteStallTimeout: 4 * time.Second}, verdict.Evidence{Queued: 1}, 0, 9400 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			tc.cfg.OutageGrace, tc.cfg.Reset = -1, []Kind{}
			s := newHandSite(t, newEcho(), tc.cfg)
			c := s.open(1)[0]
			s.pass(t, time.Minute)
			s.answer = tc.answer
			c.outbound = tc.output
			s.pass(t, tc.within)
			require.EqualValues(t, 1, s.Stats().Closed)
		})
	}
}
