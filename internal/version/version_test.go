package version

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheReplacementOfAModuleHasTheVersion(t *testing.T) {
	info := &debug.BuildInfo{
		Main: debug.Module{Path: Idlewheel, Version: "v1.2.3"},
		Deps: []*debug.Module{
			{Path: "example.org/a", Version: "v0.1.0"},
			{Path: Gnet, Version: "v2.10.0", Replace: &debug.Module{Path: "example.org/fork", Version: "v2.11.0"}},
		},
	}
	require.Equal(t, "v1.2.3", find(info, Idlewheel))
	require.Equal(t, "v0.1.0", find(info, "example.org/a"))
	require.Equal(t, "v2.11.0", find(info, Gnet))
	require.Equal(t, "unknown", find(info, "example.org/missing"))
	require.Equal(t, "unknown", Of("example.org/missing"))
}
