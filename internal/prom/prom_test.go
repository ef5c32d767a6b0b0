package prom_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/prom"
)

func TestLabelsOfReasonsHaveNoSpaces(t *testing.T) {
	require.Equal(t, "read_idle", prom.Label(idle.ReadIdle))
	require.Equal(t, "below_min_rate", prom.Label(idle.BelowMinRate))
	for reason := idle.ReadIdle; reason <= idle.Shed; reason++ {
		require.Regexp(t, "^[a-z]+(_[a-z]+)*$", prom.Label(reason))
	}
}
