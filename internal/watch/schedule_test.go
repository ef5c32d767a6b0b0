package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/wheel"
)

func TestALookIsNeverPutOff(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Minute})
	timer := p.Schedule.add(1, mono.Time(20*time.Second))
	for _, tc := range []struct{ by, want time.Duration }{
		{30 * time.Second, 20 * time.Second}, {10 * time.Second, 10 * time.Second}, {20 * time.Second, 10 * time.Second},
	} {
		p.Schedule.by(timer, mono.Time(tc.by))
		due, filed := p.Schedule.wheel.Deadline(timer)
		require.True(t, filed)
		require.Equal(t, tc.want, due, "by %v", tc.by)
	}
	p.Schedule.wheel.Advance(20*time.Second, 9, func(wheel.Handle, uint32) { p.Schedule.by(timer, mono.Time(time.Minute)) })
	require.Equal(t, 1, p.Schedule.Len(), "a look schedules the next one")
}

// TestAFrontEndThatSeesMessagesLooksInTheTickOfADeadline has a deadline between two ticks.
func TestAFrontEndThatSeesMessagesLooksInTheTickOfADeadline(t *testing.T) {
	cfg := testConfig{ReadTimeout: time.Minute, Tick: 100 * time.Millisecond}
	const due = 10*time.Second + 30*time.Millisecond
	require.Equal(t, 10*time.Second, newTestPort(t, cfg).Schedule.upcoming(mono.Time(due)))
	require.Equal(t, due, newAskingPort(t, cfg).Schedule.upcoming(mono.Time(due)))
}
