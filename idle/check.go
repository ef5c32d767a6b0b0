package idle

import (
	"cmp"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

// stamped returns the timeouts that are judged by the stamps of the coarse clock.
func (cfg *Config) stamped() []configtable.Deadline {
	return []configtable.Deadline{
		{Field: "ReadTimeout", Value: cfg.ReadTimeout},
		{Field: "WriteTimeout", Value: cfg.WriteTimeout},
		{Field: "AllTimeout", Value: cfg.AllTimeout},
		{Field: "Heartbeat.Interval", Value: cfg.Heartbeat.Interval},
	}
}

// check returns the Config with its defaults filled in, or an error that joins all that is wrong
// with it. A tick that is not 0 is that of the Reaper, which cannot change.
func (cfg Config) check(tick time.Duration) (Config, error) {
	var c checker
	cfg.fill()
	configtable.Idle.CheckRanges(&cfg, c.refuse)
	c.limits(&cfg)
	if !cfg.watches() {
		c.refuse("", "no limit is set, so no connection would ever be reaped: set one, for example %s to 60s", fieldPath("ReadTimeout"))
	}
	switch {
	case tick != 0 && cfg.Tick != 0 && cfg.Tick != tick:
		c.refuse("Tick", "%s is %v: it stays %v until the next start", fieldPath("Tick"), cfg.Tick, tick)
	case tick != 0:
		cfg.Tick = tick
	}
	if len(c.errs) == 0 {
		configtable.Idle.ChooseTick(&cfg, &cfg.Tick, tick != 0, c.refuse)
	}
	cfg.Logger = logging.Wrap(cfg.Logger)
	return cfg, c.err()
}

// fill sets the defaults that depend on no other setting.
func (cfg *Config) fill() {
	if cfg.Reset == nil {
		cfg.Reset = []Reason{WriteStall, OverLimit}
	}
	cfg.Reset = slices.Clone(cfg.Reset)
	if h := &cfg.Heartbeat; h.Interval != 0 {
		h.Retry = cmp.Or(h.Retry, h.Interval)
		h.MaxMissed = cmp.Or(h.MaxMissed, defaultMaxMissed)
		h.Jitter = cmp.Or(h.Jitter, firstPing)
	}
	if cfg.MinRate.BytesPerSecond != 0 {
		cfg.MinRate.Window = cmp.Or(cfg.MinRate.Window, defaultWindow)
	}
}

// watches reports whether there is anything to watch.
func (cfg *Config) watches() bool {
	for _, s := range configtable.Idle.Deadlines(cfg) {
		if s.Value != 0 {
			return true
		}
	}
	return cfg.OutputLimit.Hard != 0 || cfg.OutputLimit.Total > 0 || cfg.TCPKeepAlive != 0 || cfg.MaxConnections != 0
}

// timeouts returns the timeouts that SetTimeouts can change.
func (cfg *Config) timeouts() Timeouts {
	return Timeouts{Read: cfg.ReadTimeout, Write: cfg.WriteTimeout, All: cfg.AllTimeout}
}

// horizon returns the longest time in which a connection is not judged. It is the longest timeout
// that is judged by stamps, but never very short, and bounded, since the clock must remember as
// long.
func (cfg *Config) horizon() time.Duration {
	longest := minHorizon * cfg.Tick
	for _, s := range cfg.stamped() {
		longest = max(longest, s.Value)
	}
	longest += verdict.Share(longest, max(cfg.Jitter, cfg.Heartbeat.Jitter, firstPing))
	return min(longest, maxHorizon*cfg.Tick)
}

// clockMemory returns how long the clock remembers its moves: long enough for a judgement that is
// late by a whole horizon.
func (cfg *Config) clockMemory() time.Duration { return 2 * cfg.horizon() }

// longest returns the longest limit that a peer must keep.
func (cfg *Config) longest() time.Duration {
	idle := max(cfg.ReadTimeout, cfg.AllTimeout)
	h := &cfg.Heartbeat
	return max(idle+verdict.Share(idle, cfg.Jitter), cfg.FirstByteTimeout, cfg.HandshakeTimeout, cfg.WriteStallTimeout,
		cfg.OutputLimit.SoftFor, cfg.MinRate.Window, h.Interval+time.Duration(h.MaxMissed)*h.Retry)
}

// A checker collects what is wrong with a Config.
type checker struct{ errs []error }

func (c *checker) refuse(field, format string, args ...any) {
	c.errs = append(c.errs, &ConfigError{field, configtable.Idle.NameOf(field), configtable.Idle.Errorf(format, args...)})
}

func (c *checker) err() error { return errors.Join(c.errs...) }

// limits checks settings that depend on each other.
func (c *checker) limits(cfg *Config) {
	const hard, soft, softFor = fieldPath("OutputLimit.Hard"), fieldPath("OutputLimit.Soft"), fieldPath("OutputLimit.SoftFor")
	switch o := cfg.OutputLimit; {
	case o.Soft > 0 && o.SoftFor == 0:
		c.refuse(string(soft), "%s is %d without %s: set how long output may stay above it", soft, o.Soft, softFor)
	case o.Soft == 0 && o.SoftFor != 0:
		c.refuse(string(softFor), "%s is %v without %s: set the bytes above which it counts", softFor, o.SoftFor, soft)
	case o.Hard > 0 && o.Soft > o.Hard:
		c.refuse(string(soft), "%s is %d, above %s, which is %d: set less", soft, o.Soft, hard, o.Hard)
	}
	const total = fieldPath("OutputLimit.Total")
	switch o := cfg.OutputLimit; {
	case o.Total <= 0:
	case o.Total < o.Hard:
		c.refuse(string(total), "%s is %d, below %s, which is %d: set more", total, o.Total, hard, o.Hard)
	case o.Total < o.Soft:
		c.refuse(string(total), "%s is %d, below %s, which is %d: set more", total, o.Total, soft, o.Soft)
	}
	c.rate(cfg.MinRate)
	c.heartbeat(cfg.Heartbeat)
	if cfg.MaxAgeGrace != 0 && cfg.MaxAge == 0 {
		c.refuse("MaxAgeGrace", "%s is %v without %s: set both", fieldPath("MaxAgeGrace"), cfg.MaxAgeGrace, fieldPath("MaxAge"))
	}
	for _, k := range cfg.Reset {
		if !verdict.Valid(k) {
			c.refuse("Reset", "%s has %v, which is no reason", fieldPath("Reset"), k)
		}
	}
}

func (c *checker) rate(r MinRate) {
	const rate = fieldPath("MinRate.BytesPerSecond")
	switch {
	case r.BytesPerSecond == 0 && r != (MinRate{}):
		c.refuse(string(rate), "%s is not set: set the bytes per second that a message needs", rate)
	case r.Window > 0 && r.BytesPerSecond > math.MaxInt32/int(max(r.Window/time.Second, 1)):
		c.refuse(string(rate), "%s is %d for %v: set less than 2 GiB in a window", rate, r.BytesPerSecond, r.Window)
	}
}

func (c *checker) heartbeat(h Heartbeat) {
	const interval, ping = fieldPath("Heartbeat.Interval"), fieldPath("Heartbeat.Ping")
	switch {
	case h.Interval == 0 && (h.Retry != 0 || h.MaxMissed != 0 || h.Jitter != 0 || h.Ping != nil || h.IsPong != nil):
		c.refuse(string(interval), "%s is not set: set how long the peer may be silent before it gets a ping", interval)
	case h.Interval != 0 && h.Ping == nil:
		c.refuse(string(ping), "%s is nil: set the func that returns the bytes of a ping", ping)
	}
}

// LogValue returns the settings that are not zero.
func (cfg Config) LogValue() slog.Value { return configtable.Idle.LogValue(&cfg) }

// A ConfigError is one mistake in a Config. [Middleware] and [Reaper.Update] return all mistakes,
// joined by errors.Join.
type ConfigError struct {
	// Field is the field at fault, such as "ReadTimeout" or "OutputLimit.Soft", or "" if the
	// mistake is not in one field.
	Field string
	// Setting is the name of the field in flags, files and logs, such as "output-soft-limit", or ""
	// if it has none.
	Setting string

	mistake *configtable.Error
}

// A fieldPath stands for the name of a field in the arguments of an error.
type fieldPath = configtable.Field

// Error returns the text with fields named as in "Config.ReadTimeout".
func (e *ConfigError) Error() string {
	return "idle: " + e.mistake.Error()
}

// Text returns the text without "idle: ". It calls name for each field in it; setting is the name
// of the field in flags, or "".
func (e *ConfigError) Text(name func(field, setting string) string) string {
	return e.mistake.Text(name)
}
