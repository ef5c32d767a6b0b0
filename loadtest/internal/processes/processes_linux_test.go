package processes

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

func group(name string, connections int, apart bool) load.Spec {
	return load.Spec{GroupSetup: result.GroupSetup{Name: name, Connections: connections}, Apart: apart}
}

func TestPlanIsSplitEqually(t *testing.T) {
	plan := load.Plan{Setup: result.Setup{Rate: 100}, Specs: []load.Spec{group("a", 10, false), group("b", 3, false)}}
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

func TestGroupsThatAreApartHaveAProcess(t *testing.T) {
	plan := load.Plan{Setup: result.Setup{Rate: 100}, Specs: []load.Spec{group("a", 3, true), group("b", 10, false)}}
	parts := split(plan, 3)
	require.Len(t, parts, 3)
	require.Equal(t, []load.Spec{group("a", 3, true)}, parts[0].Specs)
	require.Equal(t, []load.Spec{group("b", 5, false)}, parts[1].Specs)
	require.Equal(t, []int{0, 3, 8}, []int{parts[0].First, parts[1].First, parts[2].First})
	require.InDelta(t, 100, parts[0].Rate+parts[1].Rate+parts[2].Rate, 1e-9)
}

// TestPinIsTakenBack has an effect on machines with several processors.
func TestPinIsTakenBack(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	allowed := func() (set unix.CPUSet) {
		require.NoError(t, unix.SchedGetaffinity(0, &set))
		return set
	}
	before := allowed()
	if before.Count() < 2 {
		t.Skip("one processor")
	}
	for _, last := range []bool{true, false} {
		restore := pin(last)
		now := allowed()
		if last {
			require.Equal(t, 1, now.Count())
		} else {
			require.Equal(t, before.Count()-1, now.Count())
		}
		restore()
		require.Equal(t, before, allowed())
	}
}

func TestClientRefusesInvalidPlan(t *testing.T) {
	var out bytes.Buffer
	require.ErrorContains(t, RunClient(strings.NewReader("nonsense"), &out), "reading the plan")
	require.ErrorContains(t, RunClient(strings.NewReader(`{"Targets": ["127.0.0.1:1", "[::1]:1"]}`), &out), "IPv4 and IPv6")
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
