package idle

import (
	"bytes"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEachSettingHasAName counts the fields of Config that are values, and checks that each name
// returns the value that was set.
func TestEachSettingHasAName(t *testing.T) {
	var cfg Config
	set := setAll(reflect.ValueOf(&cfg).Elem())
	cfg.MinRate.Always = false // part of min-rate
	n := 0
	for name, value := range cfg.All() {
		n++
		require.NotZero(t, value, "%s does not return the value that was set", name)
	}
	require.Equal(t, set-1, n, "a field of Config has no name in All")
}

// setAll sets all fields that are numbers or bools, also in nested structs, and returns their
// number.
func setAll(v reflect.Value) (n int) {
	for _, f := range v.Fields() {
		switch f.Kind() {
		case reflect.Struct:
			n += setAll(f)
			continue
		case reflect.Int64, reflect.Int:
			f.SetInt(int64(n + 1))
		case reflect.Float64:
			f.SetFloat(0.5)
		case reflect.Bool:
			f.SetBool(true)
		default:
			continue
		}
		n++
	}
	return n
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
