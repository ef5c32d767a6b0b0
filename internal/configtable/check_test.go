package configtable_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/configtable"
)

func TestDefaults(t *testing.T) {
	cfg := idle.Config{ReadTimeout: time.Minute, MinRate: idle.MinRate{Window: configtable.DefaultWindow}}
	configtable.Idle.Fill(&cfg)
	require.Equal(t, idle.Config{ReadTimeout: time.Minute}, cfg, "no setting needs a default")

	cfg = idle.Config{MaxConnections: 1, MinRate: idle.MinRate{BytesPerSecond: 1}}
	cfg.Heartbeat.Interval, cfg.Heartbeat.MaxMissed = time.Minute, 3
	configtable.Idle.Fill(&cfg)
	require.Zero(t, cfg.ShedProtect, "its default is quiet")
	require.Equal(t, configtable.DefaultWindow, cfg.MinRate.Window)
	require.Equal(t, time.Minute, cfg.Heartbeat.Retry, "that of another setting")
	require.Equal(t, 3, cfg.Heartbeat.MaxMissed, "it is set")
	require.Equal(t, 0.2, cfg.Heartbeat.Jitter)
}

func TestASettingIsRefusedWithoutTheOneThatItNeeds(t *testing.T) {
	var cfg idle.Config
	cfg.OutputLimit.Soft, cfg.MaxAgeGrace = 1, time.Second
	refused := map[string]string{}
	check := func() {
		clear(refused)
		configtable.Idle.CheckEach(&cfg, func(field, format string, args ...any) {
			refused[field] = configtable.Idle.Errorf(format, args...).Error()
		})
	}
	check()
	require.Equal(t, map[string]string{
		"OutputLimit.Soft": "Config.OutputLimit.Soft is 1 without Config.OutputLimit.SoftFor: set both, or neither",
		"MaxAgeGrace":      "Config.MaxAgeGrace is 1s without Config.MaxAge: set both, or neither",
	}, refused)
	cfg.OutputLimit.SoftFor, cfg.MaxAge = time.Second, time.Hour
	check()
	require.Empty(t, refused)
}
