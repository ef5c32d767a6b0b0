package idle

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestStatesReuseIDsAndNeverMove(t *testing.T) {
	var s states
	first, p := s.take(1)
	p.leftover = 7
	for range 10 * statePiece {
		s.take(1)
	}
	require.Same(t, p, s.at(first))
	s.put(first)
	_, other := s.take(1)
	require.NotSame(t, p, other, "a state is not reused within the tick in which it was opened")
	again, q := s.take(2)
	require.Equal(t, first, again)
	require.Same(t, p, q)
	require.Zero(t, q.leftover, "a reused state is empty")
	require.EqualValues(t, 2, q.instants[atOpened])
}

func TestAStateIs88Bytes(t *testing.T) {
	require.EqualValues(t, 88, unsafe.Sizeof(state{}), "the budget per connection, with the table and the wheel, is 144 bytes")
}

func TestChurnNeedsFewStates(t *testing.T) {
	var s states
	for tick := uint32(1); tick < 1000; tick++ {
		for range 100 { // opened and closed within the tick
			id, _ := s.take(tick)
			s.put(id)
		}
	}
	require.LessOrEqual(t, s.used, uint32(200), "no more states than are used within two ticks")
	require.LessOrEqual(t, cap(s.free.ids), 1000)
}

func TestFlags(t *testing.T) {
	var f flags
	f.set(leaving, true)
	for n := range maxMaxMissed + 1 {
		f.setMissed(n)
		require.Equal(t, n, f.missed())
		require.True(t, f.has(leaving))
		require.False(t, f.has(exempt|observed))
	}
	f.set(leaving, false)
	require.Equal(t, maxMaxMissed, f.missed())
}
