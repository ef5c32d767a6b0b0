package idle

import (
	"iter"
	"log/slog"
	"time"
)

// All returns the settings that are values by the names that logs, flags and files give them, such as read-timeout, those that are off
// included: durations, ints, a float64 and bools.
func (cfg Config) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, s := range []struct {
			name  string
			value any
		}{
			{"read-timeout", cfg.ReadTimeout},
			{"write-timeout", cfg.WriteTimeout},
			{"all-timeout", cfg.AllTimeout},
			{"jitter", cfg.Jitter},
			{"first-byte-timeout", cfg.FirstByteTimeout},
			{"handshake-timeout", cfg.HandshakeTimeout},
			{"write-stall-timeout", cfg.WriteStallTimeout},
			{"output-limit", cfg.OutputLimit.Hard},
			{"output-soft-limit", cfg.OutputLimit.Soft},
			{"output-soft-for", cfg.OutputLimit.SoftFor},
			{"min-rate", cfg.MinRate.BytesPerSecond},
			{"min-rate-window", cfg.MinRate.Window},
			{"min-rate-grace", cfg.MinRate.Grace},
			{"heartbeat", cfg.Heartbeat.Interval},
			{"heartbeat-retry", cfg.Heartbeat.Retry},
			{"heartbeat-missed", cfg.Heartbeat.MaxMissed},
			{"heartbeat-jitter", cfg.Heartbeat.Jitter},
			{"max-age", cfg.MaxAge},
			{"max-age-grace", cfg.MaxAgeGrace},
			{"tcp-keepalive", cfg.TCPKeepAlive},
			{"max-connections", cfg.MaxConnections},
			{"shed-protect", cfg.ShedProtect},
			{"observe-only", cfg.ObserveOnly},
			{"keep-closed", cfg.KeepClosed},
			{"outage-grace", cfg.OutageGrace},
			{"tick", cfg.Tick},
		} {
			if !yield(s.name, s.value) {
				return
			}
		}
	}
}

// LogValue returns the settings that are not off.
func (cfg Config) LogValue() slog.Value {
	var on []slog.Attr
	for name, value := range cfg.All() {
		switch value {
		case time.Duration(0), 0, 0.0, false:
		default:
			on = append(on, slog.Any(name, value))
		}
	}
	return slog.GroupValue(on...)
}
