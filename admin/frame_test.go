package admin

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Config.Status is code of the program, and may divide by zero. JSON has no NaN.
func TestAPressureThatIsNaNDoesNotPanic(t *testing.T) {
	h := newHandler(t, Config{Open: true, Status: func() Status { return Status{State: Ready, Pressure: Pressure{Heap: math.NaN()}} }})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NotPanics(t, func() { h.live.run(ctx, make(chan struct{})) })
}
