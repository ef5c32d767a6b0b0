package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/reap"
)

// TestLimitsOfAClosedConnectionAreGivenBack checks the number of users of shared limits.
func TestLimitsOfAClosedConnectionAreGivenBack(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 5 * time.Second})
	var number uint16
	for want := range uint32(2) {
		id, c := p.open()
		for range 3 {
			require.NoError(t, p.SetLimits(id, c, reap.ConnLimits{ReadTimeout: time.Hour}))
			require.NoError(t, p.SetLimits(id, c, reap.ConnLimits{ReadTimeout: time.Minute}))
		}
		number = c.LimitsID
		require.Equal(t, want+1, p.limits.uses[number])
		require.Len(t, p.limits.index, 1)
	}
	p.pass(2 * time.Minute)
	require.Len(t, p.closed, 2)
	require.Zero(t, p.limits.uses[number])
	require.Empty(t, p.limits.index)
}

// TestLimitsAreRebuiltWhenTheyAreUsed changes the settings, which would otherwise rebuild the
// limits of thousands of connections at once.
func TestLimitsAreRebuiltWhenTheyAreUsed(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour})
	id, c := p.open()
	require.NoError(t, p.SetLimits(id, c, reap.ConnLimits{AllTimeout: 2 * time.Hour}))
	old := p.limits.all[c.LimitsID]
	require.NoError(t, p.ScaleTimeouts(1, time.Minute))
	p.Follow(p.Settings())
	require.Same(t, old, p.limits.all[c.LimitsID])
	require.Equal(t, time.Minute, p.LimitsOf(c).Read)
	require.Equal(t, time.Minute, p.LimitsOf(c).All)
	require.NotSame(t, old, p.limits.all[c.LimitsID])
}
