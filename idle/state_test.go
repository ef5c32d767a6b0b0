package idle

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestAStateIs88Bytes(t *testing.T) {
	require.EqualValues(t, 88, unsafe.Sizeof(state{}), "the budget per connection, with the table and the wheel, is 152 bytes")
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
