package outputs

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSet(t *testing.T) {
	var s Set
	_, bytes := s.Largest()
	require.Zero(t, bytes)
	require.Zero(t, s.Set(7, 0), "a connection without output is not kept")
	require.Zero(t, s.Len())
	require.Equal(t, 10, s.Set(7, 10))
	require.Equal(t, 20, s.Set(8, 20))
	require.True(t, s.Has(7))
	id, bytes := s.Largest()
	require.Equal(t, uint32(8), id)
	require.Equal(t, 20, bytes)
	require.Equal(t, -15, s.Set(8, 5))
	id, _ = s.Largest()
	require.Equal(t, uint32(7), id)
	require.Equal(t, 15, s.Sum())
	require.Equal(t, -10, s.Set(7, 0))
	require.False(t, s.Has(7))
	require.Equal(t, -5, s.Set(8, 0))
	require.Nil(t, s.heap.all)
	require.Nil(t, s.heap.at)
}

// TestSetAgainstAMap compares a Set with a map after random calls.
func TestSetAgainstAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var s Set
	want := map[uint32]int{}
	for range 20_000 {
		id, bytes := uint32(random.IntN(50)), random.IntN(100)
		if random.IntN(2) == 0 {
			bytes = 0
		}
		require.Equal(t, bytes-want[id], s.Set(id, bytes))
		want[id] = bytes
		if bytes == 0 {
			delete(want, id)
		}
		sum, most := 0, 0
		for _, n := range want {
			sum += n
			most = max(most, n)
		}
		of, largest := s.Largest()
		require.Equal(t, most, largest)
		require.Equal(t, want[of], largest)
		require.Equal(t, sum, s.Sum())
		require.Equal(t, len(want), s.Len())
		require.Equal(t, want[id] > 0, s.Has(id))
		for i, o := range s.heap.all {
			require.Equal(t, i, s.heap.at[o.id])
		}
	}
}

func TestAChangeAllocatesNothing(t *testing.T) {
	var s Set
	for id := range uint32(1000) {
		s.Set(id, 1)
	}
	n := 0
	require.Zero(t, testing.AllocsPerRun(1000, func() { n++; s.Set(uint32(n%1000), n) }))
}
