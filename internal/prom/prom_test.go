package prom_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/prom"
	"github.com/idlewheel/idlewheel/reap"
)

func TestLabelsOfReasonsHaveNoSpaces(t *testing.T) {
	require.Equal(t, "read_idle", prom.Label(reap.ReadIdle))
	require.Equal(t, "below_min_rate", prom.Label(reap.BelowMinRate))
	for reason := reap.ReadIdle; reason <= reap.Shed; reason++ {
		require.Regexp(t, "^[a-z]+(_[a-z]+)*$", prom.Label(reason))
	}
}
