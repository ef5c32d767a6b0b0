package processes

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
)

func TestPlanIsSplitEqually(t *testing.T) {
	plan := load.Plan{Rate: 100, Specs: []load.Spec{{Name: "a", Connections: 10}, {Name: "b", Connections: 3}}}
	parts := split(plan, 4)
	require.Len(t, parts, 4)
	var a, b, first int
	for _, part := range parts {
		require.InDelta(t, 25, part.Rate, 1e-9)
		require.Equal(t, first, part.First, "connections are numbered across processes")
		require.InDelta(t, 2.5, part.Specs[0].Connections, 0.5)
		a += part.Specs[0].Connections
		b += part.Specs[1].Connections
		first += part.Specs[0].Connections + part.Specs[1].Connections
	}
	require.Equal(t, 10, a)
	require.Equal(t, 3, b)
}

func TestGroupApartHasAProcessOfItsOwn(t *testing.T) {
	plan := load.Plan{Rate: 100, Specs: []load.Spec{{Name: "a", Connections: 10, Apart: true}, {Name: "b", Connections: 30}}}
	parts := split(plan, 3)
	require.Len(t, parts, 3)
	require.Equal(t, plan.Specs[:1], parts[0].Specs)
	require.InDelta(t, 25, parts[0].Rate, 1e-9, "in proportion to its connections")
	for i, part := range parts[1:] {
		require.InDelta(t, 37.5, part.Rate, 1e-9)
		require.Equal(t, 10+15*i, part.First)
		require.Equal(t, []load.Spec{{Name: "b", Connections: 15}}, part.Specs)
	}
	require.Len(t, split(plan, 1)[0].Specs, 2, "one process has all")
}

func TestClientRefusesInvalidPlan(t *testing.T) {
	var out bytes.Buffer
	require.ErrorContains(t, RunClient(strings.NewReader("nonsense"), &out), "reading the plan")
	require.ErrorContains(t, RunClient(strings.NewReader("{}"), &out), "no target")
}

func TestTailKeepsTheEnd(t *testing.T) {
	var text tail
	for range 10 {
		_, err := text.Write(bytes.Repeat([]byte("x"), 1000))
		require.NoError(t, err)
	}
	_, err := text.Write([]byte("the end\n"))
	require.NoError(t, err)
	require.Len(t, text.String(), tailSize-1)
	require.True(t, strings.HasSuffix(text.String(), "xthe end"))
}
