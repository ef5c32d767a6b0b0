package watch

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheFirstAreKept(t *testing.T) {
	for _, limit := range []int{0, 1, 7, 100, 1000} {
		all := rand.Perm(500)
		l := NewFirst(limit, cmp.Compare[int])
		var dropped []int
		for _, x := range all {
			if !l.Admits(x) {
				dropped = append(dropped, x)
			}
			l.Add(x)
		}
		slices.Sort(all)
		first := all[:min(limit, len(all))]
		require.Equal(t, first, append([]int{}, l.Sorted()...))
		require.Equal(t, limit < len(all), len(dropped) > 0, "most are not even admitted")
		for _, x := range dropped {
			require.GreaterOrEqual(t, x, limit)
		}
	}
}
