package watch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNumbersAreUsedAgainAndValuesNeverMove(t *testing.T) {
	var s slab[int]
	first, p := s.take(1)
	*p = 7
	for range 10 * pieceLen {
		s.take(1)
	}
	require.Same(t, p, s.at(first))
	s.put(first, 1)
	_, other := s.take(1)
	require.NotSame(t, p, other, "not in the tick in which it was taken before")
	again, q := s.take(2)
	require.Equal(t, first, again)
	require.Same(t, p, q)
	require.Zero(t, *q, "nothing of the old value is left")
	require.EqualValues(t, 10*pieceLen+2, s.taken)
}

func TestChurnNeedsFewValues(t *testing.T) {
	var s slab[int]
	for tick := uint32(1); tick < 1000; tick++ {
		for range 100 { // taken and given back within the tick
			id, _ := s.take(tick)
			s.put(id, tick)
		}
	}
	require.LessOrEqual(t, s.taken, uint32(200), "no more than are used within a tick or two")
	require.LessOrEqual(t, cap(s.freed), 1000)
}
