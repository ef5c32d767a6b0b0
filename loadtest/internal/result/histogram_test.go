package result

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercentileIsNotBelowTheTruth(t *testing.T) {
	h := times(append(make([]time.Duration, 149), 1500, 1500)...) // 98.7 % are 0
	require.GreaterOrEqual(t, h.Quantile(0.99), time.Duration(1500))
}

// TestQuantilesOfAllMessages has 7 answers and 3 messages without one, which count as slowest.
func TestQuantilesOfAllMessages(t *testing.T) {
	const ms = time.Millisecond
	l := &Latency{Corrected: *times(1*ms, 2*ms, 3*ms, 4*ms, 5*ms, 6*ms, 70*ms), Unanswered: *times(50*ms, 400*ms, 900*ms)}
	for q, want := range map[float64]string{0.1: "1 ms", 0.5: "5 ms", 0.61: "70 ms", 0.7: "70 ms", 0.8: "≥ 70 ms", 0.9: "≥ 400 ms", 1: "≥ 900 ms"} {
		require.Equal(t, want, l.Text(q), q)
	}
	require.EqualValues(t, 10, l.Quantiles().Count)
	require.Equal(t, (&Latency{Unanswered: *times(900 * ms)}).Spread(), "p50 ≥ 900 ms · p99 ≥ 900 ms · max ≥ 900 ms")
	r := faultless()
	r.Groups[0].Latency["hold"].Unanswered = *times(900 * ms)
	expecting("latency.hold.max<2s")(r)
	r.Judge()
	require.Equal(t, Failed, r.Verdict.Outcome, "a message without an answer does not meet a bound")
	require.Contains(t, r.Expectations[0].Got, "at least 9")
}
