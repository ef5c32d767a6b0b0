package mono

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTime(t *testing.T) {
	at := Time(0).Add(1500 * time.Millisecond)
	require.Equal(t, Time(1_500_000_000), at)
	require.Equal(t, 1500*time.Millisecond, at.Sub(0))
	require.Equal(t, -time.Second, at.Sub(at.Add(time.Second)))
	require.Equal(t, "1.5s", at.String())
}

func TestTruncate(t *testing.T) {
	for at, want := range map[Time]Time{0: 0, 1: 0, 9: 0, 10: 10, 11: 10, 19: 10, 20: 20} {
		require.Equal(t, want, at.Truncate(10), "%v", at)
	}
}
