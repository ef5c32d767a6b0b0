package watch

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
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

// TestABlockedLoopCountsForALimitOfAnUpdate blocks a loop before it follows an Update that switches
// on the first limit that needs the loop.
func TestABlockedLoopCountsForALimitOfAnUpdate(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 10 * time.Second})
	p.pass(time.Second)
	stall := verdict.Outage{From: p.now, To: p.now.Add(30 * time.Second), Length: 30 * time.Second}
	p.Shard.Outages.AddStall(stall.From, stall.To)
	require.Equal(t, verdict.Outages{stall}, p.Shard.Outages.away.Loop)
}

// TestASilenceOfAllIsHeldAndRemembered steps the Monitor as the driver does. So few connections are
// no group.
func TestASilenceOfAllIsHeldAndRemembered(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 10 * time.Second})
	p.pass(time.Second)
	rule, last := *p.Rule(), p.now
	away := func(heard mono.Time) *verdict.Away {
		from := p.now
		p.now = p.now.Add(rule.Tick)
		p.Monitor.Step(from, p.now, heard, rule)
		p.Clock.Move()
		return p.Shard.Outages.At(p.now)
	}
	for p.Monitor.State().Count == nil {
		require.Empty(t, away(last).Holds)
		require.Less(t, p.now, last.Add(10*time.Second))
	}
	p.Monitor.State().Count.Add(outage.MinBusy)
	for range 10 {
		require.Equal(t, []mono.Time{last}, away(last).Holds)
	}
	after := away(p.now)
	require.Empty(t, after.Holds)
	require.Len(t, after.All, 1)
	require.Empty(t, after.Server)
}

func TestOutagesAreLogged(t *testing.T) {
	var log bytes.Buffer
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	length := verdict.Outage{Length: 1}
	for _, f := range []outage.Finding{{Held: 1}, {Outage: length, Silent: true, GivenUp: true}, {Outage: length, Silent: true}, {Outage: length}} {
		p.now = p.now.Add(2 * time.Second) // no more than one of a kind in a second
		p.Report(f)
	}
	logging.Of(p.Settings().Logger).Flush()
	require.Regexp(t, "(?s)are suspended.*peers go on.*the silence of all connections is over.*the server stood still", log.String())
}
