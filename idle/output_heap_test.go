package idle

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOutputHeap(t *testing.T) {
	var s outputHeap
	_, bytes := s.largest()
	require.Zero(t, bytes)
	require.Zero(t, s.set(7, 0), "a connection without output is not kept")
	require.Zero(t, s.Len())
	require.Equal(t, 10, s.set(7, 10))
	require.Equal(t, 20, s.set(8, 20))
	require.True(t, s.has(7))
	id, bytes := s.largest()
	require.Equal(t, uint32(8), id)
	require.Equal(t, 20, bytes)
	require.Equal(t, -15, s.set(8, 5))
	id, _ = s.largest()
	require.Equal(t, uint32(7), id)
	require.Equal(t, 15, s.sum)
	require.Equal(t, -10, s.set(7, 0))
	require.False(t, s.has(7))
	require.Equal(t, -5, s.set(8, 0))
	require.Nil(t, s.all)
	require.Nil(t, s.at)
}

// TestSetAgainstAMap compares a Set with a map after random calls.
func TestSetAgainstAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var s outputHeap
	want := map[uint32]int{}
	for range 20_000 {
		id, bytes := uint32(random.IntN(50)), random.IntN(100)
		if random.IntN(2) == 0 {
			bytes = 0
		}
		require.Equal(t, bytes-want[id], s.set(id, bytes))
		want[id] = bytes
		if bytes == 0 {
			delete(want, id)
		}
		sum, most := 0, 0
		for _, n := range want {
			sum += n
			most = max(most, n)
		}
		of, largest := s.largest()
		require.Equal(t, most, largest)
		require.Equal(t, want[of], largest)
		require.Equal(t, sum, s.sum)
		require.Equal(t, len(want), s.Len())
		require.Equal(t, want[id] > 0, s.has(id))
		for i, o := range s.all {
			require.Equal(t, i, s.at[o.id])
		}
	}
}

func TestAChangeAllocatesNothing(t *testing.T) {
	var s outputHeap
	for id := range uint32(1000) {
		s.set(id, 1)
	}
	n := 0
	require.Zero(t, testing.AllocsPerRun(1000, func() { n++; s.set(uint32(n%1000), n) }))
}
