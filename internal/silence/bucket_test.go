package silence

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEachSilenceIsInItsBucket(t *testing.T) {
	for d := unit; d < 15*time.Hour; d += d / 100 {
		bucket := Bucket(d)
		require.GreaterOrEqual(t, Bucket(d+d/45), bucket+1)
		require.LessOrEqual(t, Bucket(d+d/47), bucket+1)
		require.EqualValues(t, bucket+perOctave, Bucket(2*d))
	}
	require.EqualValues(t, Buckets-1, Bucket(1000*time.Hour))
	require.Zero(t, Bucket(-1))
}
