package idle

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

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
	require.Contains(t, out.String(), " idle.read-timeout=2h0m0s\n")
}

// TestConcurrentUpdatesAreAllKept changes two timeouts on goroutines of their own, many times.
func TestConcurrentUpdatesAreAllKept(t *testing.T) {
	const times = 500
	r := middleware(t, &sink{}, Config{ReadTimeout: time.Minute, AllTimeout: time.Minute})
	var changing sync.WaitGroup
	for _, edit := range []func(*Config){
		func(cfg *Config) { cfg.ReadTimeout += time.Second },
		func(cfg *Config) { cfg.AllTimeout += time.Second },
	} {
		changing.Go(func() {
			for range times {
				assert.NoError(t, r.Update(edit))
			}
		})
	}
	changing.Wait()
	require.Equal(t, time.Minute+times*time.Second, r.Config().ReadTimeout)
	require.Equal(t, time.Minute+times*time.Second, r.Config().AllTimeout)
	require.EqualValues(t, 2*times, r.Stats().Updates)
}

// TestALoopThatHasFollowedAnUpdateRests counts the tasks after new settings, of many connections.
func TestALoopThatHasFollowedAnUpdateRests(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Hour, OutageGrace: -1})
	s.open(10 * adaptStep)
	s.pass(t, time.Second)
	s.cost = 100 * time.Microsecond // of a reading of the clock: a task has time for a few steps
	require.NoError(t, s.Update(func(cfg *Config) { cfg.ReadTimeout = time.Minute }))
	<-s.watch.Wakes
	s.round()
	require.NoError(t, s.el.run(t))
	require.NotEmpty(t, s.watch.Wakes, "there are more connections to adapt")
	s.pass(t, time.Second)
	for len(s.watch.Wakes) > 0 {
		<-s.watch.Wakes
	}
	tasks := 0
	for end := s.at.Add(10 * time.Second); s.at < end; s.at = s.at.Add(s.watch.Clock.Tick()) {
		s.round()
		if len(s.el.tasks) > 0 {
			require.NoError(t, s.el.run(t))
			require.Empty(t, s.watch.Wakes)
			tasks++
		}
	}
	require.LessOrEqual(t, tasks, 2, "to publish the figures of the loop")
	s.cost = 0
	s.pass(t, time.Minute)
	require.Zero(t, s.Connections())
}

// TestALoweredLimitCountsNoLateness lowers limits below the silence of connections. Their deadlines
// have then passed long ago, but the Reaper could not know them.
func TestALoweredLimitCountsNoLateness(t *testing.T) {
	for name, change := range map[string]func(*Reaper) error{
		"update": func(r *Reaper) error { return r.Update(to(Config{ReadTimeout: time.Second})) },
		"age":    func(r *Reaper) error { return r.Update(to(Config{ReadTimeout: time.Minute, MaxAge: time.Second})) },
		"scale":  func(r *Reaper) error { return r.ScaleTimeouts(1, time.Second) },
	} {
		s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Minute, OutageGrace: -1})
		s.open(1)
		s.pass(t, 10*time.Second)
		require.NoError(t, change(s.Reaper))
		s.pass(t, 3*s.watch.Clock.Tick())
		require.EqualValues(t, 1, s.Stats().Lateness.Count, name)
		require.LessOrEqual(t, s.Stats().Lateness.Max, 3*s.watch.Clock.Tick(), name)
	}
}
