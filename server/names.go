package server

import (
	"iter"
	"log/slog"
	"strings"
	"time"
)

// settings returns the settings of the server by the names that they have in flags and files.
func (cfg *Config) settings() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, s := range []struct {
			name  string
			value any
		}{
			{"addr", strings.Join(cfg.Addresses, ", ")},
			{"loops", cfg.NumEventLoop},
			{"max-per-source", cfg.Sources.Connections},
			{"source-rate", cfg.Sources.Rate},
			{"accept-rate", cfg.AcceptRate},
			{"pressure-timeout", cfg.PressureTimeout},
			{"one-acceptor", cfg.OneAcceptor},
			{"share-port", cfg.ReusePort},
			{"restart", cfg.Restart},
			{"drain-delay", cfg.Drain.Delay},
			{"drain-spread", cfg.Drain.Spread},
			{"drain-timeout", cfg.Drain.Timeout},
			{"admin", cfg.Admin.Addr},
			{"admin-pprof", cfg.Admin.Profiles},
		} {
			if !yield(s.name, s.value) {
				return
			}
		}
	}
}

// named returns the settings for JSON, with durations as text such as 1m30s.
func (cfg *Config) named() map[string]any {
	all := map[string]any{}
	for name, value := range cfg.settings() {
		if d, ok := value.(time.Duration); ok {
			value = d.String()
		}
		all[name] = value
	}
	return all
}

// LogValue returns the settings that are not zero, without Idle, which is logged by itself.
func (cfg Config) LogValue() slog.Value {
	var on []slog.Attr
	for name, value := range cfg.settings() {
		switch value {
		case time.Duration(0), 0, false, "":
		default:
			on = append(on, slog.Any(name, value))
		}
	}
	return slog.GroupValue(on...)
}
