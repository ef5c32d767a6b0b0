package configtable_test

import (
	"errors"
	"flag"
	"math"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/server"
)

func find(t *testing.T, name string) configtable.Setting {
	t.Helper()
	for _, s := range configtable.Idle {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no setting %s", name)
	return configtable.Setting{}
}

func TestEachRowIsComplete(t *testing.T) {
	testRows(t, configtable.Idle, new(idle.Config))
	testRows(t, configtable.Server, new(server.Config))
	require.Empty(t, configtable.Idle.NameOf("Heartbeat.Ping"))
	require.Empty(t, configtable.Server.NameOf("Handler"))
	changes := configtable.Idle.Changes(new(idle.Config), &idle.Config{ReadTimeout: time.Hour})
	require.Equal(t, "[read-timeout=1h0m0s]", changes.String())
	for _, s := range configtable.Server {
		for _, other := range configtable.Idle {
			require.NotEqual(t, other.Name, s.Name)
		}
	}
}

func testRows(t *testing.T, table configtable.Table, cfg any) {
	t.Helper()
	kebab := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	units := map[reflect.Kind]string{
		reflect.Int: "bytes|number", reflect.Int64: "duration", reflect.Float64: "part", reflect.Bool: "", reflect.String: "address|file",
		reflect.Slice: "address",
	}
	names, fields := map[string]bool{}, map[string]bool{}
	for _, s := range table {
		v := s.Of(cfg)
		unit, _ := flag.UnquoteUsage(&flag.Flag{Usage: s.Help, Value: s.Value(cfg)})
		require.Regexp(t, kebab, s.Name)
		require.Regexp(t, "^("+units[v.Kind()]+")$", unit, s.Name)
		require.NotEmpty(t, s.Help, s.Name)
		require.False(t, names[s.Name] || fields[s.Field], "%s is there twice", s.Name)
		names[s.Name], fields[s.Field] = true, true
		require.Equal(t, s.Name, table.NameOf(s.Field))
		if !v.CanInt() && !v.CanFloat() {
			require.Empty(t, s.ZeroText(), s.Name)
			continue
		}
		require.NotEmpty(t, s.ZeroText(), s.Name)
		require.NotEqual(t, s.Ticks, s.Min < s.Max, "%s: only a deadline has no bounds of its own", s.Name)
		require.False(t, s.Adjustable && unit != "duration", "%s: POST takes durations", s.Name)
		require.False(t, s.Ticks && unit != "duration", "%s: ticks are of durations", s.Name)
	}
}

func TestErrorf(t *testing.T) {
	cause := errors.New("server: cause")
	err := configtable.Server.Errorf("%w: %s is %d, and %s is nil", cause, configtable.Field("AcceptRate"), 5, configtable.Field("Handler"))
	require.EqualError(t, err, "server: cause: Config.AcceptRate is 5, and Config.Handler is nil")
	require.ErrorIs(t, err, cause)
	require.Equal(t, "server: cause: AcceptRate/accept-rate is 5, and Handler/ is nil",
		err.Text(func(field, setting string) string { return field + "/" + setting }))
}

func TestTokenMistake(t *testing.T) {
	for token, want := range map[string]string{
		"": "", "0123456789abcdef": "", "0123456789abcde": "has 15 characters: set at least 16",
		"0123456789 abcdef": "has a character that a header cannot have: use letters and digits",
	} {
		require.Equal(t, want, configtable.TokenMistake(token), token)
	}
}

func TestMistake(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		name  string
		value any
		want  string
	}{
		{"read-timeout", time.Duration(0), ""},
		{"read-timeout", time.Millisecond, ""},
		{"read-timeout", configtable.TenYears, ""},
		{"read-timeout", time.Millisecond - 1, "set at least 1ms, or 0 for none"},
		{"read-timeout", configtable.TenYears + 1, "set at most ten years"},
		{"read-timeout", -time.Second, "set a positive duration such as 60s, or 0 for none"},
		{"min-rate-window", -time.Second, "set a positive duration such as 60s, or 0 for 5s"},
		{"tcp-keepalive", 8 * time.Second, ""},
		{"tcp-keepalive", 8*time.Second - 1, "set at least 8s, or 0 for none"},
		{"tcp-keepalive", day, ""},
		{"tcp-keepalive", day + 1, "set at most 24h"},
		{"outage-grace", time.Duration(1), ""},
		{"outage-grace", time.Duration(math.MinInt64), ""},
		{"outage-grace", time.Duration(math.MaxInt64), "set at most ten years"},
		{"jitter", 1.0, ""},
		{"jitter", 1e-9, ""},
		{"jitter", 1.001, "set at most 1"},
		{"jitter", -0.1, "set a positive number, or 0 for none"},
		{"jitter", math.NaN(), "set at most 1"},
		{"heartbeat-jitter", -1.0, ""},
		{"heartbeat-jitter", math.NaN(), "set at most 1"},
		{"heartbeat-missed", 15, ""},
		{"heartbeat-missed", 16, "set at most 15"},
		{"heartbeat-missed", -1, "set a positive number, or 0 for 2"},
		{"output-limit", math.MaxInt, ""},
		{"output-limit", -1, "set a positive number, or 0 for none"},
		{"output-total", -1, ""},
		{"output-total", math.MaxInt, ""},
		{"max-connections", math.MaxInt32, ""},
		{"max-connections", int64(math.MaxInt32 + 1), "set at most 2147483647"},
		{"keep-closed", 1 << 16, ""},
		{"keep-closed", 1<<16 + 1, "set at most 65536"},
		{"observe-only", true, ""},
	} {
		require.Equal(t, tc.want, find(t, tc.name).Mistake(reflect.ValueOf(tc.value)), "%s of %v", tc.name, tc.value)
	}
}

func TestRange(t *testing.T) {
	for name, want := range map[string]string{
		"read-timeout": "1ms to ten years", "tcp-keepalive": "8s to 24h", "outage-grace": "up to ten years", "jitter": "up to 1",
		"heartbeat-missed": "1 to 15", "min-rate": "1 or more", "observe-only": "",
	} {
		s := find(t, name)
		require.Equal(t, want, s.Range(s.Of(new(idle.Config)).Type()), name)
	}
}
