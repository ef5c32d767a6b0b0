package mono

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLongestRemembersOneToTwoWindows(t *testing.T) {
	const window = 10
	var l Longest
	require.Zero(t, l.Worst(0, window))
	l.Add(7, 3, window)
	l.Add(5, 4, window)
	require.EqualValues(t, 7, l.Worst(4, window))
	require.EqualValues(t, 7, l.Worst(9, window))
	l.Add(6, 15, window)
	require.EqualValues(t, 7, l.Worst(15, window), "the maximum of the previous window")
	require.EqualValues(t, 7, l.Worst(24, window))
	require.EqualValues(t, 6, l.Worst(25, window))
	require.EqualValues(t, 0, l.Worst(100, window), "nothing for two windows")
	l.Add(3, 120, window)
	require.EqualValues(t, 3, l.Worst(120, window))
	require.EqualValues(t, 0, l.Worst(145, window), "nothing for more than a window")
	l.Add(4, 150, 1000*window)
	require.EqualValues(t, 4, l.Worst(160, window))
	require.EqualValues(t, 0, l.Worst(200, window), "the windows have become shorter")
}

// TestLongestNeverForgetsWithinAWindow checks random results against lower and upper bounds.
func TestLongestNeverForgetsWithinAWindow(t *testing.T) {
	const window = 50
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	type added struct {
		d  time.Duration
		at Time
	}
	var l Longest
	var all []added
	at := Time(0)
	for range 20_000 {
		at += Time(rng.IntN(30))
		if rng.IntN(2) == 0 {
			d := time.Duration(rng.IntN(1000))
			l.Add(d, at, window)
			all = append(all, added{d, at})
		}
		least, most := time.Duration(0), time.Duration(0)
		for i := len(all) - 1; i >= 0 && at-all[i].at <= 3*window; i-- {
			if at-all[i].at < window {
				least = max(least, all[i].d)
			}
			most = max(most, all[i].d)
		}
		got := l.Worst(at, window)
		require.GreaterOrEqual(t, got, least, "seed %d", seed)
		require.LessOrEqual(t, got, most, "seed %d", seed)
	}
}
