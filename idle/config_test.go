package idle

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

func TestMiddlewareRefusesBadConfig(t *testing.T) {
	for _, tc := range []struct {
		name string
		next gnet.EventHandler
		cfg  Config
		want []string
	}{
		{"nothing", nil, Config{}, []string{"the handler is nil", "no limit is set"}},
		{"no timeout", newEcho(), Config{}, []string{"no limit is set", "for example Config.ReadTimeout to 60s"}},
		{"negative", newEcho(), Config{ReadTimeout: -1, Tick: -1},
			[]string{"Config.ReadTimeout is -1ns", "Config.Tick is -1ns"}},
		{"too short", newEcho(), Config{ReadTimeout: time.Microsecond}, []string{"Config.ReadTimeout is 1µs: set at least 1ms"}},
		{"negative hard limit", newEcho(), Config{OutputLimit: OutputLimit{Hard: -1}},
			[]string{"Config.OutputLimit.Hard is -1: set a positive number, or 0 for none"}},
		{"soft limit above the hard limit", newEcho(), Config{OutputLimit: OutputLimit{Hard: 1, Soft: 2, SoftFor: time.Second}},
			[]string{"Config.OutputLimit.Soft is 2, above Config.OutputLimit.Hard, which is 1: set less"}},
		{"total below the hard limit", newEcho(), Config{OutputLimit: OutputLimit{Hard: 1 << 20, Total: 1000}},
			[]string{"Config.OutputLimit.Total is 1000, below Config.OutputLimit.Hard, which is 1048576: set more"}},
		{"total below the soft limit", newEcho(), Config{OutputLimit: OutputLimit{Soft: 1001, SoftFor: time.Second, Total: 1000}},
			[]string{"Config.OutputLimit.Total is 1000, below Config.OutputLimit.Soft, which is 1001: set more"}},
		{"only a negative total", newEcho(), Config{OutputLimit: OutputLimit{Total: math.MinInt}},
			[]string{"no limit is set"}},
		{"soft limit without a time", newEcho(), Config{OutputLimit: OutputLimit{Soft: 1 << 20}},
			[]string{"Config.OutputLimit.Soft is 1048576 without Config.OutputLimit.SoftFor: set both, or neither"}},
		{"low mark above the high mark", newEcho(), Config{OutputMarks: OutputMarks{High: 1, Low: 2, OnWritable: func(gnet.Conn, bool) {}}},
			[]string{"Config.OutputMarks.Low is 2, above Config.OutputMarks.High, which is 1: set less"}},
		{"marks without a function", newEcho(), Config{OutputMarks: OutputMarks{High: -1, Low: -1}},
			[]string{"Config.OutputMarks.High is -1: set a positive number", "Low is -1: set a positive number", "Config.OutputMarks.High is -1, and the program has no func that stops a producer"}},
		{"answers to pings without pings", newEcho(), Config{ReadTimeout: time.Minute, Heartbeat: Heartbeat{IsPong: func(gnet.Conn) bool { return true }}},
			[]string{"Config.Heartbeat.Ping is nil: set the func of a ping"}},
		{"pongs without pings", newEcho(), Config{Heartbeat: Heartbeat{Interval: time.Second, IsPong: func(gnet.Conn) bool { return true }}},
			[]string{"Config.Heartbeat.Ping is nil"}},
		{"tick too short", newEcho(), Config{ReadTimeout: time.Second, Tick: time.Microsecond},
			[]string{"Config.Tick is 1µs: set at least 1ms"}},
		{"tick above timeout", newEcho(), Config{ReadTimeout: time.Second, Tick: time.Minute},
			[]string{"Config.Tick is 1m0s, longer than Config.ReadTimeout of 1s", "a tenth"}},
		{"keepalive too short", newEcho(), Config{TCPKeepAlive: time.Second}, []string{"Config.TCPKeepAlive is 1s"}},
		{"absurd", newEcho(), Config{ReadTimeout: math.MaxInt64, Tick: time.Millisecond},
			[]string{"Config.ReadTimeout is 2562047h47m16.854775807s", "at most ten years"}},
		{"absurd by default", newEcho(), Config{ReadTimeout: math.MaxInt64},
			[]string{"Config.ReadTimeout is 2562047h47m16.854775807s"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Middleware(tc.next, tc.cfg)
			require.Nil(t, r)
			for _, want := range tc.want {
				require.Equal(t, 1, strings.Count(err.Error(), want), "%q in %v", want, err)
			}
		})
	}
}

func TestAReadTimeoutBeforeTheFirstPingIsWarnedOf(t *testing.T) {
	const s = time.Second
	ping := func(gnet.Conn) []byte { return nil }
	for what, tc := range map[string]struct {
		cfg   Config
		warns bool
	}{
		"shorter":                  {Config{ReadTimeout: 20 * s, Heartbeat: Heartbeat{Interval: 30 * s}}, true},
		"the same":                 {Config{ReadTimeout: 30 * s, Heartbeat: Heartbeat{Interval: 30 * s}}, true},
		"a little jitter":          {Config{ReadTimeout: 20 * s, Jitter: 0.5, Heartbeat: Heartbeat{Interval: 30 * s}}, true},
		"longer with jitter":       {Config{ReadTimeout: 20 * s, Jitter: 1, Heartbeat: Heartbeat{Interval: 30 * s}}, false},
		"longer":                   {Config{ReadTimeout: 31 * s, Heartbeat: Heartbeat{Interval: 30 * s}}, false},
		"bytes that are no pong":   {Config{ReadTimeout: 20 * s, Heartbeat: Heartbeat{Interval: 30 * s, IsPong: func(gnet.Conn) bool { return false }}}, false},
		"a handler that decides":   {Config{ReadTimeout: 20 * s, OnIdle: func(gnet.Conn, Event) gnet.Action { return gnet.None }, Heartbeat: Heartbeat{Interval: 30 * s}}, false},
		"output counts as well":    {Config{AllTimeout: 20 * s, Heartbeat: Heartbeat{Interval: 30 * s}}, false},
		"no heartbeat, no warning": {Config{ReadTimeout: 20 * s}, false},
	} {
		var out syncbuf.Buffer
		tc.cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
		if tc.cfg.Heartbeat.Interval > 0 {
			tc.cfg.Heartbeat.Ping = ping
		}
		r, err := Middleware(newEcho(), tc.cfg)
		require.NoError(t, err)
		require.NoError(t, r.Update(func(cfg *Config) { cfg.MaxAge = time.Hour }))
		if tc.cfg.Heartbeat.Interval > 0 {
			require.NoError(t, r.Update(func(cfg *Config) { cfg.Heartbeat.MaxMissed++ }))
		}
		flushLog(r)
		warnings := 0
		if tc.warns {
			warnings = 1 // at the start, and not by an Update of others
			require.Contains(t, out.String(), "pings-take=2m6s", what)
		}
		require.Equal(t, warnings, strings.Count(out.String(), "heartbeat=30s pings-take=1m36s"), "%s: %s", what, &out)
	}
}

func TestDefaults(t *testing.T) {
	for _, tc := range []struct{ timeout, tick time.Duration }{
		{time.Millisecond, time.Millisecond},
		{5 * time.Millisecond, time.Millisecond},
		{100 * time.Millisecond, 10 * time.Millisecond},
		{500 * time.Millisecond, 20 * time.Millisecond},
		{4 * time.Second, 20 * time.Millisecond},
		{10 * time.Second, 50 * time.Millisecond},
		{time.Hour, 100 * time.Millisecond},
		{365 * 24 * time.Hour, 100 * time.Millisecond},
		{configtable.TenYears, configtable.TenYears/configtable.MaxTicks + 1},
	} {
		r := middleware(t, newEcho(), Config{ReadTimeout: tc.timeout})
		require.Equal(t, tc.tick, r.Config().Tick, "%v", tc.timeout)
		require.NotNil(t, r.Config().Logger)
	}
	ping := Heartbeat{Interval: time.Minute, Jitter: -1, Ping: func(gnet.Conn) []byte { return nil }}
	set := middleware(t, newEcho(), Config{Heartbeat: ping}).watch.Settings()
	require.Zero(t, set.Config.Limits.Heartbeat.Jitter, "negative is none")
	require.Equal(t, configtable.DefaultShedProtect, set.ShedProtect)
}

// notSettings are the fields of Config that flags cannot set.
var notSettings = []string{"Goodbye", "Heartbeat.IsPong", "Heartbeat.Ping", "Logger", "OnIdle", "OutputMarks.OnWritable", "Refusal", "Reset"}

// TestEachFieldIsASetting checks that a field of Config is in the table of settings, or in the list
// above.
func TestEachFieldIsASetting(t *testing.T) {
	want := slices.Clone(notSettings)
	for _, s := range configtable.Idle {
		want = append(want, s.Field)
	}
	require.ElementsMatch(t, want, fieldsOf(reflect.TypeFor[Config](), ""))
}

// fieldsOf returns the paths of the fields of a struct, with the fields of nested structs.
func fieldsOf(t reflect.Type, path string) (all []string) {
	for _, f := range reflect.VisibleFields(t) {
		if f.Type.Kind() == reflect.Struct {
			all = append(all, fieldsOf(f.Type, path+f.Name+".")...)
		} else {
			all = append(all, path+f.Name)
		}
	}
	return all
}

func TestAllReturnsTheValueOfEachSetting(t *testing.T) {
	var cfg Config
	want := map[string]any{}
	for _, s := range configtable.Idle {
		switch v := s.Of(&cfg); v.Kind() {
		case reflect.Float64:
			v.SetFloat(0.5)
		case reflect.Bool:
			v.SetBool(true)
		default:
			v.SetInt(int64(len(want) + 1))
		}
		want[s.Name] = s.Of(&cfg).Interface()
	}
	require.Equal(t, want, maps.Collect(configtable.Idle.Values(&cfg)))
	require.Equal(t, 0.5, want["jitter"])
	require.Equal(t, time.Duration(1), want["read-timeout"])
	require.Equal(t, true, want["min-rate-always"])
}

// TestTheRangesFitTheCode compares the table with the sizes of other parts of the
// package.
func TestTheRangesFitTheCode(t *testing.T) {
	for _, s := range configtable.Idle {
		switch s.Name {
		case "heartbeat-missed":
			require.EqualValues(t, 15, s.Max)
		case "tcp-keepalive":
			require.EqualValues(t, minKeepAlive, s.Min)
		case "tick":
			require.EqualValues(t, time.Millisecond, s.Min)
		}
	}
}

func TestAConfigErrorNamesFieldsLikeItsCaller(t *testing.T) {
	_, err := Middleware(newEcho(), Config{ReadTimeout: time.Second, Tick: time.Minute})
	var mistake *ConfigError
	ok := errors.As(err, &mistake)
	require.True(t, ok)
	require.Equal(t, "ReadTimeout", mistake.Field)
	require.Equal(t, "read-timeout", mistake.Setting)
	require.EqualError(t, mistake, "idle: Config.Tick is 1m0s, longer than Config.ReadTimeout of 1s: set a longer timeout, or a tick of a tenth of it")
	require.Equal(t, "--tick is 1m0s, longer than --read-timeout of 1s: set a longer timeout, or a tick of a tenth of it",
		mistake.Text(func(_, setting string) string { return "--" + setting }))

	_, err = Middleware(newEcho(), Config{Heartbeat: Heartbeat{Interval: time.Second, IsPong: func(gnet.Conn) bool { return true }}})
	ok = errors.As(err, &mistake)
	require.True(t, ok)
	require.Equal(t, "Heartbeat.Ping", mistake.Field)
	require.NotContains(t, err.Error(), "Interval is not set")
	require.Empty(t, mistake.Setting)
}

// TestAnUpdateCannotChangeTheTick checks the other values with the tick of the Reaper.
func TestAnUpdateCannotChangeTheTick(t *testing.T) {
	r := middleware(t, newEcho(), Config{ReadTimeout: time.Second, Tick: 50 * time.Millisecond})
	err := r.Update(func(cfg *Config) { cfg.Tick = -time.Second })
	require.ErrorContains(t, err, "Config.Tick is -1s: set a positive duration")
	require.ErrorContains(t, err, "Config.Tick is -1s: it stays 50ms until the next start")
	err = r.Update(func(cfg *Config) { cfg.ReadTimeout = 10 * time.Millisecond })
	require.EqualError(t, err, "idle: Config.ReadTimeout is 10ms, shorter than Config.Tick of 50ms, which only a new start changes: set a longer timeout")
}

func TestALoggedConfigHasTheSettingsThatAreOn(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
	log.Info("is", "limits", Config{ReadTimeout: time.Minute, Jitter: 0.25, ObserveOnly: true, OutputLimit: OutputLimit{Hard: 5}})
	require.Equal(t, "msg=is limits.read-timeout=1m0s limits.jitter=0.25 limits.output-limit=5 limits.observe-only=true\n", out.String())
}

// TestZeroSwitchesOffWhatTheProgramHasSet sets the number alone, as operators do: the program has
// set the funcs, and the rest may be that of the time before.
func TestZeroSwitchesOffWhatTheProgramHasSet(t *testing.T) {
	r, err := Middleware(newEcho(), Config{
		ReadTimeout: time.Hour, Heartbeat: Heartbeat{
			Interval: time.Minute, Ping: func(gnet.Conn) []byte { return nil }, IsPong: func(gnet.Conn) bool { return false },
		},
		OutputMarks: OutputMarks{High: 100, Low: 10, OnWritable: func(gnet.Conn, bool) {}}, MinRate: MinRate{BytesPerSecond: 1},
	})
	require.NoError(t, err)
	require.True(t, r.watch.Settings().Limits.Heartbeat.PongsOnly)
	require.NoError(t, r.Update(func(cfg *Config) { cfg.Heartbeat.Interval, cfg.OutputMarks.High, cfg.MinRate.BytesPerSecond = 0, 0, 0 }))
	cfg := r.Config()
	require.Zero(t, [4]float64{cfg.Heartbeat.Retry.Seconds(), float64(cfg.Heartbeat.MaxMissed), cfg.Heartbeat.Jitter, float64(cfg.OutputMarks.Low)})
	require.Zero(t, cfg.MinRate, "the window was the default")
	require.False(t, r.watch.Settings().Limits.Heartbeat.PongsOnly, "any byte is a sign of life")
	require.NoError(t, r.Update(func(cfg *Config) { cfg.Heartbeat.Interval, cfg.OutputMarks.High = time.Second, 10 }))
	require.Equal(t, 2, r.Config().Heartbeat.MaxMissed)
}
