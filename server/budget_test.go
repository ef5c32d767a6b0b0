//go:build unix

package server

import (
	"testing"

	"github.com/stretchr/testify/require"
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
		{"as many as there is room for", budget{allowed: 1000, inUse: 10}, 914, "1000 descriptors allowed, less 10 in use, 12 for the engine and 64 in reserve"},
		{"fewer than asked for", budget{allowed: 1000, inUse: 10, wanted: 5000}, 914, "1000 descriptors allowed, less 10 in use, 12 for the engine and 64 in reserve"},
		{"two addresses", budget{allowed: 1000, inUse: 10, addresses: 2}, 911,
			"1000 descriptors allowed, less 10 in use, 15 for the engine and 64 in reserve"},
		{"a backlog", budget{allowed: 6000, inUse: 10, backlog: 4096, wanted: 1500}, 1500, "as configured"},
		{"room beside a backlog", budget{allowed: 6000, inUse: 10, backlog: 4096}, 1818,
			"6000 descriptors allowed, less 10 in use, 12 for the engine and 64 in reserve and 4096 that may be accepted before they can be refused (net.core.somaxconn)"},
	} {
		tc.loops = 2
		n, why, err := tc.connections()
		require.NoError(t, err, tc.name)
		require.Equal(t, tc.want, n, tc.name)
		require.Equal(t, tc.why, why, tc.name)
	}
	for _, b := range []budget{{allowed: 80, inUse: 10}, {allowed: 1000, backlog: 4096, wanted: 1}} {
		_, _, err := b.connections()
		require.ErrorIs(t, err, ErrTooFewDescriptors)
	}
	require.Equal(t, 966, budget{allowed: 1000, loops: 2}.full())
	require.Zero(t, budget{}.full())
}
