package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/loadtest/internal/proc"
)

func TestKernelMemory(t *testing.T) {
	slab := proc.System().FieldAfter("meminfo", "Slab:", 0)
	require.True(t, slab.Known)
	require.InEpsilon(t, slab.N<<10, KernelMemory(), 0.5, "without traffic it is almost entirely slabs")
}
