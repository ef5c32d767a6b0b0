package idle

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

func TestStatsAndRingsCoverAllLoops(t *testing.T) {
	r := middleware(t, &sink{}, readOnly)
	var conns []*scriptedConn
	for loop := range 3 {
		el := newScriptedLoop()
		for range loop + 1 {
			c := newScriptedConn(el, len(conns))
			conns = append(conns, c)
			r.OnOpen(c)
		}
	}
	got := r.Stats()
	require.Equal(t, 6, got.Connections)
	require.Equal(t, 6, got.Entries)
	require.EqualValues(t, 6, got.Opened)
	for _, c := range conns { // rings would wait for loops with connections, which do not run here
		r.OnClose(c, nil)
	}
	got = r.Stats()
	require.Zero(t, got.Entries)
	require.EqualValues(t, 6, got.Closed)
	rings, err := ringsOf(t.Context(), r, 4)
	require.NoError(t, err)
	require.Len(t, rings, 3)
	for i, ring := range rings {
		require.Equal(t, i+1, ring.Loop, "the rings are in the order of the loops")
	}
}

// TestADriverWithoutConnectionsHasNoLag opens connections long after the Reaper was made, and long
// after the last close.
func TestADriverWithoutConnectionsHasNoLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := middleware(t, &sink{}, Config{ReadTimeout: time.Hour, Tick: 100 * time.Millisecond})
		c := newScriptedConn(newScriptedLoop(), 1)
		for range 2 {
			time.Sleep(time.Hour + 30*time.Millisecond)
			r.OnOpen(c)
			require.Zero(t, r.Stats().DriverLag, "the driver has just started")
			time.Sleep(time.Second)
			require.Zero(t, r.Stats().DriverLag, "the ticks were in time")
			r.OnClose(c, nil)
			require.Zero(t, r.Stats().DriverLag)
		}
	})
}

func TestAChangeOfTheConfigurationIsLogged(t *testing.T) {
	var out syncbuf.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	r := middleware(t, &sink{}, Config{ReadTimeout: time.Minute, Logger: log})
	require.Empty(t, out.String())
	require.Error(t, r.Update(to(Config{ReadTimeout: -1, Logger: log})))
	flushLog(r)
	require.Empty(t, out.String(), "an error changes nothing")
	require.NoError(t, r.Update(to(Config{ReadTimeout: 2 * time.Hour, Logger: log})))
	flushLog(r)
	require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
	require.Contains(t, out.String(), `level=INFO msg="configuration changed"`)
	require.Contains(t, out.String(), " idle.read-timeout=2h0m0s ")
}
