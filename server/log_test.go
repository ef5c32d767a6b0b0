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
	for setting := range strings.FieldsSeq("config.addr= idle.read-timeout= idle.tick= limit= because=") {
		require.Equal(t, 1, strings.Count(log.String(), " "+setting), "%s in %s", setting, &log)
	}
	require.Equal(t, 1, strings.Count(ofReaper.String(), "idle.max-connections="), "%s", &ofReaper)
	require.Contains(t, ofReaper.String(), "msg=\"configuration changed\" idle.read-timeout=2h0m0s\n")
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
