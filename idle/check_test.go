package idle

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/configtable"
)

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

// TestAConfigErrorKeepsTheValueOfItsCheck changes the tick of a Reaper to a value out of range. The
// check continues with the tick of the Reaper.
func TestAConfigErrorKeepsTheValueOfItsCheck(t *testing.T) {
	r := middleware(t, newEcho(), Config{ReadTimeout: time.Second, Tick: 50 * time.Millisecond})
	err := r.Update(func(cfg *Config) { cfg.Tick = -time.Second })
	require.ErrorContains(t, err, "Config.Tick is -1s: set a positive duration")
	require.ErrorContains(t, err, "Config.Tick is -1s: it stays 50ms until the next start")
}

func TestAnUpdateCannotGoBelowTheTick(t *testing.T) {
	r := middleware(t, newEcho(), Config{ReadTimeout: time.Second, Tick: 50 * time.Millisecond})
	err := r.Update(func(cfg *Config) { cfg.ReadTimeout = 10 * time.Millisecond })
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

func TestAMistakeIsReportedOnce(t *testing.T) {
	_, err := Middleware(&sink{}, Config{ReadTimeout: time.Minute, Heartbeat: Heartbeat{
		Ping: func(gnet.Conn) []byte { return nil }, IsPong: func(gnet.Conn) bool { return true },
	}})
	require.Error(t, err)
	require.Equal(t, 1, strings.Count(err.Error(), "Heartbeat.Interval is not set"), "%v", err)
}
