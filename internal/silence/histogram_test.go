package silence

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEachSilenceIsInItsBucket(t *testing.T) {
	bounds := Bounds()
	for i, from := range bounds[:Buckets-1] {
		to := bounds[i+1]
		require.Less(t, from, to)
		require.LessOrEqual(t, to-from, max(unit, from/perOctave))
		require.EqualValues(t, i, Bucket(from))
		require.EqualValues(t, i, Bucket(to-1))
	}
	require.EqualValues(t, Buckets-1, Bucket(1000*time.Hour))
	require.Zero(t, Bucket(-1))
}
