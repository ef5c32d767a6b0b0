package idlenet

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

const (
	defaultMaxMissed   = 2
	defaultWindow      = 5 * time.Second
	defaultJitter      = 0.2 // of Heartbeat
	defaultCloseGrace  = 5 * time.Second
	defaultShedProtect = time.Second
	maxGrace           = 2 * time.Minute // the longest time between two retransmissions of Linux

	minHorizon = 1 << 11 // ticks
	maxHorizon = 1 << 15 // ticks
)

// settings are a checked Config and the values derived from it. Immutable.
type settings struct {
	cfg    Config
	limits verdict.Limits
	reset  [verdict.Last + 1]bool
	drain  verdict.Drain
	rule   outage.Rule
	fresh  time.Duration // a peer is alive if its last byte is younger
}

func newSettings(cfg Config, drain verdict.Drain, before *settings, since mono.Time) *settings {
	if drain != (verdict.Drain{}) {
		cfg.ObserveOnly = false // Drain was called to end connections
	}
	set := &settings{cfg: cfg, drain: drain, limits: cfg.limits(), fresh: cfg.shortestIdle() / 2}
	set.limits.Drain = drain
	if before != nil {
		previous := before.limits // a copy: the judge may still use them
		previous.Previous = nil
		set.limits.Previous, set.limits.Since = &previous, since
	}
	set.rule = outage.Rule{
		Tick: cfg.Tick, Gap: outage.LeastGap(cfg.Tick, configtable.Net.Shortest(&cfg).Value), Hold: cfg.OutageGrace >= 0,
		Memory: max(cfg.horizon(), cfg.longest(), cfg.CloseGrace), Longest: cfg.longest(), Shortest: cfg.shortestIdle(),
	}
	for _, r := range cfg.Reset {
		set.reset[r] = true
	}
	return set
}

// limits returns the limits in the form that verdicts use.
func (cfg *Config) limits() verdict.Limits {
	h := &cfg.Heartbeat
	lim := verdict.Limits{
		Read: cfg.ReadTimeout, Write: cfg.WriteTimeout, All: cfg.AllTimeout, Jitter: cfg.Jitter,
		FirstByte: cfg.FirstByteTimeout, Handshake: cfg.HandshakeTimeout, Stall: cfg.WriteStallTimeout,
		Rate:      verdict.Rate(cfg.MinRate),
		Heartbeat: verdict.Heartbeat{Interval: h.Interval, Retry: h.Retry, MaxMissed: h.MaxMissed, Jitter: max(h.Jitter, 0)},
		Age:       cfg.MaxAge, AgeGrace: cfg.MaxAgeGrace,
		Grace: cfg.OutageGrace, Hold: cfg.OutageGrace,
		Tick: cfg.Tick, Horizon: cfg.horizon(),
	}
	if cfg.OutageGrace == 0 {
		lim.Grace, lim.Hold = maxGrace, configtable.TenYears
	}
	return lim
}

// check returns the Config with its defaults filled in, or an error that joins all that is wrong
// with it. A tick that is not 0 is that of the Listener, which cannot change.
func (cfg Config) check(tick time.Duration) (Config, error) {
	var errs []error
	refuse := func(_, format string, args ...any) {
		errs = append(errs, fmt.Errorf("idlenet: %w", configtable.Net.Errorf(format, args...)))
	}
	cfg.fill()
	configtable.Net.CheckRanges(&cfg, refuse)
	cfg.checkParts(refuse)
	if cfg.Sources.Connections >= 0 && cfg.Sources.Rate >= 0 { // otherwise it is refused already
		if _, err := sourcelimit.New(cfg.Sources); err != nil {
			errs = append(errs, fmt.Errorf("idlenet: Config.Sources: %w", err))
		}
	}
	if !cfg.watches() {
		refuse("", "no limit is set, so no connection would ever end: set one, for example %s to 60s", configtable.Field("ReadTimeout"))
	}
	if tick != 0 && cfg.Tick != 0 && cfg.Tick != tick {
		refuse("", "%s is %v: Update cannot change it, it stays %v until the next start", configtable.Field("Tick"), cfg.Tick, tick)
	}
	cfg.Tick = cmp.Or(tick, cfg.Tick)
	if len(errs) == 0 {
		configtable.Net.ChooseTick(&cfg, &cfg.Tick, tick != 0, refuse)
	}
	cfg.Logger = logging.Wrap(cfg.Logger)
	return cfg, errors.Join(errs...)
}

// fill sets the defaults that depend on no other setting.
func (cfg *Config) fill() {
	if cfg.Reset == nil {
		cfg.Reset = []Reason{WriteStall}
	}
	cfg.Reset = slices.Clone(cfg.Reset)
	cfg.CloseGrace = cmp.Or(cfg.CloseGrace, defaultCloseGrace)
	if h := &cfg.Heartbeat; h.Interval != 0 {
		h.Retry = cmp.Or(h.Retry, h.Interval)
		h.MaxMissed = cmp.Or(h.MaxMissed, defaultMaxMissed)
		h.Jitter = cmp.Or(h.Jitter, defaultJitter)
	}
	if cfg.MinRate.BytesPerSecond != 0 {
		cfg.MinRate.Window = cmp.Or(cfg.MinRate.Window, defaultWindow)
	}
}

// checkParts checks settings that depend on each other.
func (cfg *Config) checkParts(refuse configtable.Refuse) {
	const interval, ping = configtable.Field("Heartbeat.Interval"), configtable.Field("Heartbeat.Ping")
	h := &cfg.Heartbeat
	switch {
	case h.Interval == 0 && (h.Retry != 0 || h.MaxMissed != 0 || h.Jitter != 0 || h.Ping != nil):
		refuse("", "%s is not set: set how long the peer may be silent before it gets a ping", interval)
	case h.Interval != 0 && h.Ping == nil:
		refuse("", "%s is nil: set the func that sends a ping", ping)
	}
	cfg.checkRate(refuse)
	if cfg.MaxAgeGrace != 0 && cfg.MaxAge == 0 {
		refuse("", "%s is %v without %s: set both", configtable.Field("MaxAgeGrace"), cfg.MaxAgeGrace, configtable.Field("MaxAge"))
	}
	for _, r := range cfg.Reset {
		if !verdict.Valid(r) {
			refuse("", "%s has %v, which is no reason", configtable.Field("Reset"), r)
		}
	}
}

func (cfg *Config) checkRate(refuse configtable.Refuse) {
	const rate = configtable.Field("MinRate.BytesPerSecond")
	switch r := cfg.MinRate; {
	case r.BytesPerSecond == 0 && r != (MinRate{}):
		refuse("", "%s is not set: set the bytes per second that a message needs", rate)
	case r.Window > 0 && r.BytesPerSecond > math.MaxInt32/int(max(r.Window/time.Second, 1)):
		refuse("", "%s is %d for %v: set less than 2 GiB in a window", rate, r.BytesPerSecond, r.Window)
	}
}

// watches reports whether there is anything to watch.
func (cfg *Config) watches() bool {
	for _, s := range configtable.Net.Deadlines(cfg) {
		if s.Value != 0 && s.Field != "ShedProtect" {
			return true
		}
	}
	return cfg.TCPKeepAlive != 0 || cfg.MaxConnections != 0 || cfg.Sources.Connections != 0 || cfg.Sources.Rate != 0 || cfg.AcceptRate != 0
}

// longestIdle returns the longest of the timeouts that count from the last activity.
func (cfg *Config) longestIdle() time.Duration {
	longest := max(cfg.ReadTimeout, cfg.WriteTimeout, cfg.AllTimeout, cfg.Heartbeat.Interval)
	return longest + verdict.Share(longest, max(cfg.Jitter, cfg.Heartbeat.Jitter, 0))
}

// shortestIdle returns the shortest silence after which a connection may end, 0 if there is none.
func (cfg *Config) shortestIdle() (shortest time.Duration) {
	for _, d := range []time.Duration{cfg.ReadTimeout, cfg.AllTimeout, cfg.Heartbeat.Interval} {
		if d > 0 && (shortest == 0 || d < shortest) {
			shortest = d
		}
	}
	return shortest
}

// horizon returns the longest time in which a connection is not judged. The clock remembers twice
// as long.
func (cfg *Config) horizon() time.Duration {
	d := min(max(minHorizon*cfg.Tick, cfg.longestIdle()), maxHorizon*cfg.Tick)
	if cfg.WriteStallTimeout > 0 { // output that waits is found by judging
		d = min(d, cfg.WriteStallTimeout)
	}
	return d
}

func (cfg *Config) clockMemory() time.Duration {
	return 2 * max(cfg.horizon(), min(cfg.longestIdle(), maxHorizon*cfg.Tick))
}

// longest returns the longest limit that a peer must keep.
func (cfg *Config) longest() time.Duration {
	h := &cfg.Heartbeat
	return max(cfg.longestIdle(), cfg.FirstByteTimeout, cfg.HandshakeTimeout, cfg.WriteStallTimeout, cfg.MinRate.Window,
		h.Interval+time.Duration(h.MaxMissed)*h.Retry)
}

// LogValue returns the settings that are not zero.
func (cfg Config) LogValue() slog.Value { return configtable.Net.LogValue(&cfg) }
