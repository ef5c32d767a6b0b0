//go:build unix

package server

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

func TestTheBudgetOfDescriptors(t *testing.T) {
	for _, tc := range []struct {
		name string
		budget
		want int
		why  string
	}{
		{"no limit is known", budget{}, 0, "as configured"},
		{"no limit is known, configured", budget{wanted: 500}, 500, "as configured"},
		{"enough", budget{allowed: 1000, inUse: 10, wanted: 800}, 800, "as configured"},
		{"as many as there is room for", budget{allowed: 1000, inUse: 10}, 912, "1000 descriptors allowed, less 10 in use, 14 for the engine and 64 in reserve"},
		{"fewer than asked for", budget{allowed: 1000, inUse: 10, wanted: 5000}, 912, "1000 descriptors allowed, less 10 in use, 14 for the engine and 64 in reserve"},
		{"two listeners", budget{allowed: 1000, inUse: 10, listeners: 2}, 904,
			"1000 descriptors allowed, less 10 in use, 22 for the engine and 64 in reserve"},
	} {
		tc.loops, tc.listeners = 2, max(tc.listeners, 1)
		n, err := tc.connections()
		require.NoError(t, err, tc.name)
		require.Equal(t, tc.want, n, tc.name)
		require.Equal(t, tc.why, tc.budget.why(n), tc.name)
		require.Equal(t, n, tc.bound(tc.wanted), tc.name)
	}
	_, err := budget{allowed: 80, inUse: 10}.connections()
	require.ErrorIs(t, err, ErrTooFewDescriptors)
	require.Equal(t, 960, budget{allowed: 1000, loops: 2, listeners: 1}.full())
	require.Equal(t, math.MaxInt, budget{admin: 65}.full(), "the limit is not known")
	for limit, fewer := range map[int]bool{0: false, 1: false, 1 << 30: true} {
		var log syncbuf.Buffer
		cfg := &Config{Logger: logTo(&log), Idle: idle.Config{MaxConnections: limit}}
		_, err := newSetup(t.Context(), cfg)
		require.NoError(t, err)
		require.Equal(t, fewer, strings.Contains(log.String(), "fewer connections than configured"), limit)
	}
	own := newBudget(&Config{}, 1)
	require.Equal(t, own.allowed > 0, own.inUse > 0)
}
