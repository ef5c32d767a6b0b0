package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// TestAGapIsKnownBeforeTheMonitorRecordsIt stops the process before and after the driver moves the
// clock.
func TestAGapIsKnownBeforeTheMonitorRecordsIt(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 10 * time.Second})
	p.pass(time.Second)
	began := p.now
	p.now = p.now.Add(30 * time.Second)
	want := verdict.Outages{{From: began, To: p.now, Length: 30 * time.Second}}
	require.Equal(t, want, p.Shard.Outages.At(p.now).Server)
	p.Clock.Move()
	require.Equal(t, want, p.Shard.Outages.At(p.now).Server)
}

func TestAnOutageOfTheServerBlocksItsLoops(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 10 * time.Second})
	p.open()
	p.pass(time.Second)
	p.now = p.now.Add(30 * time.Second)
	p.pass(time.Second)
	away := p.Shard.Outages.At(p.now)
	require.Len(t, away.Server, 1)
	require.Equal(t, away.Server, away.Loop)
}
