//go:build unix

package server

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

// TestTheStartLogsEachSettingOnce starts a server with a limit of connections from the number of
// descriptors, and changes a setting later.
func TestTheStartLogsEachSettingOnce(t *testing.T) {
	var log, ofReaper syncbuf.Buffer
	s, stop := startIn(t, Config{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Idle:   idle.Config{ReadTimeout: time.Hour, Logger: slog.New(slog.NewTextHandler(&ofReaper, nil))},
	})
	limit, _ := s.Limit()
	require.Equal(t, limit, s.Reaper().Config().MaxConnections, "the start has set it")
	require.NoError(t, s.Update(func(cfg *idle.Config) { cfg.ReadTimeout = 2 * time.Hour }))
	stop()
	for setting := range strings.FieldsSeq("config.addr= idle.read-timeout= idle.max-connections= idle.tick= limit= because=") {
		require.Equal(t, 1, strings.Count(log.String(), " "+setting), "%s in %s", setting, &log)
	}
	require.Equal(t, 1, strings.Count(ofReaper.String(), "configuration changed"), "%s", &ofReaper)
	require.Contains(t, ofReaper.String(), `msg="configuration changed" idle.read-timeout=2h0m0s `)
}

// TestTheStartWarnsOnce has a heartbeat that never sends a ping, and a limit of connections from
// the number of descriptors.
func TestTheStartWarnsOnce(t *testing.T) {
	var log syncbuf.Buffer
	_, stop := startIn(t, Config{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Idle: idle.Config{
			ReadTimeout: 20 * time.Second,
			Heartbeat:   idle.Heartbeat{Interval: 30 * time.Second, Ping: func(gnet.Conn) []byte { return []byte("ping") }},
		},
	})
	stop()
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), "%s", &log)
	require.Contains(t, log.String(), "read-timeout=20s heartbeat=30s", "it names both")
}

// TestAShortageChangesNoLogger changes the limit of connections, and then the Config.
func TestAShortageChangesNoLogger(t *testing.T) {
	var log syncbuf.Buffer
	r, err := idle.Middleware(&echo{}, idle.Config{ReadTimeout: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	logger := r.Config().Logger
	setMaxConnections(r, 7)
	require.Equal(t, 7, r.Config().MaxConnections)
	require.Same(t, logger, r.Config().Logger)
	require.NoError(t, r.Update(func(cfg *idle.Config) { cfg.MaxConnections = 8 }))
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "idle.max-connections=8") }, 10*time.Second, time.Millisecond)
	require.NotContains(t, log.String(), "idle.max-connections=7")
}
