package watch

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

const (
	minHorizon = 1 << 11 // ticks
	maxHorizon = 1 << 15 // ticks: the clock remembers twice as many moves, 512 KiB
)

// Settings are a checked Config and the values derived from it. Immutable: a change makes others.
type Settings struct {
	Config
	Common  *Limits       // of connections without limits of their own
	Horizon time.Duration // the longest time in which a connection is not judged
	Version int64         // counts from 1

	form     *Form
	overlay  overlay
	previous *Settings // the ones before, see before; nil at first
	since    mono.Time // the time at which these replaced previous
}

// An overlay changes the limits of a Config until it is replaced.
type overlay struct {
	drain verdict.Drain
	scale scale
}

// A scale holds the arguments of ScaleTimeouts. The zero scale changes nothing.
type scale struct {
	by    float64       // from 0 to 1
	least time.Duration // the timeouts if by is 1
}

func (s scale) of(d time.Duration) time.Duration {
	if d <= s.least {
		return d
	}
	return d - verdict.Share(d-s.least, s.by)
}

// Limits are limits in the form that verdicts use, those of the Config or of some connections.
// Immutable.
type Limits struct {
	verdict.Limits
	Own     reap.ConnLimits // of these connections
	version int64           // of the Settings
	polled  bool            // each look asks the kernel
}

// next returns the settings that replace these at an instant.
func (set *Settings) next(cfg Config, now overlay, at mono.Time) *Settings {
	return newSettings(set.form, cfg, set.Version+1, now, set.before(at, changesKept), at)
}

const (
	// changeKept is how long settings are kept after they were replaced: while a loop closes the
	// connections that a change has made due, others may follow. At most changesKept are kept.
	changeKept  = time.Minute
	changesKept = 8
)

// before returns a copy of settings that are replaced at an instant, with those before them that
// are kept, at most most.
func (set *Settings) before(at mono.Time, most int) *Settings {
	old := *set
	old.previous = nil
	if set.previous != nil && most > 0 && at < set.since.Add(changeKept) {
		old.previous = set.previous.before(at, most-1)
	}
	return &old
}

func newSettings(form *Form, cfg Config, version int64, now overlay, before *Settings, since mono.Time) *Settings {
	if now.drain != (verdict.Drain{}) {
		cfg.ObserveOnly = false // Drain was called to close connections
	}
	set := &Settings{Config: cfg, form: form, Version: version, overlay: now, previous: before, since: since}
	set.Horizon = cfg.horizon()
	set.Common = set.limitsOf(reap.ConnLimits{})
	return set
}

// joined returns settings that take the place of these and the next ones, while some connections
// are adapted to either. Adapt to the last ones finds each difference that there is to one of them.
func (set *Settings) joined(next, last *Settings) *Settings {
	both := *set
	if next.TCPKeepAlive != set.TCPKeepAlive {
		both.TCPKeepAlive = -1 // another one than in all settings
	}
	lim := &both.Config.Limits
	lim.Rate.Always = lim.Rate.Always || next.Config.Limits.Rate.Always
	if pongs := &lim.Heartbeat.PongsOnly; *pongs != next.Config.Limits.Heartbeat.PongsOnly {
		*pongs = !last.Config.Limits.Heartbeat.PongsOnly
	}
	both.Common = both.limitsOf(reap.ConnLimits{})
	return &both
}

// Resets reports whether a connection that ends for a reason is reset.
func (set *Settings) Resets(r reap.Reason) bool { return slices.Contains(set.Reset, r) }

// Draining reports whether Drain was called.
func (set *Settings) Draining() bool { return set.overlay.drain != (verdict.Drain{}) }

// horizon returns the longest time in which a connection is not judged. It is the longest timeout
// that counts from the last activity, but never very short, and bounded, since the clock must
// remember as long.
func (cfg *Config) horizon() time.Duration {
	lim := &cfg.Limits
	longest := max(lim.Read, lim.Write, lim.All)
	longest += verdict.Share(longest, lim.Jitter)
	ping := lim.Heartbeat.Interval + verdict.Share(lim.Heartbeat.Interval, lim.Heartbeat.Jitter)
	return min(max(longest, ping, minHorizon*cfg.Tick), maxHorizon*cfg.Tick)
}

// clockMemory returns how long the clock remembers its moves: long enough for a look that is late
// by a whole horizon.
func (cfg *Config) clockMemory() time.Duration { return 2 * cfg.horizon() }

// limitsOf returns the limits of connections with some limits of their own.
func (set *Settings) limitsOf(own reap.ConnLimits) *Limits {
	lim := &Limits{Limits: set.Config.Limits, Own: own, version: set.Version}
	override(&lim.Limits, &own)
	for _, d := range []*time.Duration{&lim.Read, &lim.Write, &lim.All} {
		*d = set.scaled(*d)
	}
	lim.Drain = set.overlay.drain
	lim.Tick, lim.Horizon = set.Tick, set.Horizon
	if every := lim.PollKernel(!set.form.AsksFirst); every > 0 {
		lim.Horizon, lim.polled = min(lim.Horizon, every), true
	}
	if before := set.previous; before != nil {
		lim.Previous, lim.Since = &before.limitsOf(own).Limits, set.since
		if before.ObserveOnly && !set.ObserveOnly { // no deadline closed anything
			lim.Previous = &verdict.Limits{}
		}
	}
	return lim
}

// scaled returns an idle timeout after ScaleTimeouts.
func (set *Settings) scaled(d time.Duration) time.Duration {
	return max(set.overlay.scale.of(d), min(d, set.Tick))
}

// override replaces the limits that a connection has of its own.
func override(lim *verdict.Limits, own *reap.ConnLimits) {
	for limit, d := range map[*time.Duration]time.Duration{
		&lim.Read: own.ReadTimeout, &lim.Write: own.WriteTimeout, &lim.All: own.AllTimeout,
		&lim.Handshake: own.HandshakeTimeout, &lim.Stall: own.WriteStallTimeout, &lim.Age: own.MaxAge,
	} {
		if d != 0 {
			*limit = max(d, 0)
		}
	}
	if own.MinRate.BytesPerSecond != 0 {
		if lim.Rate = own.MinRate; lim.Rate.BytesPerSecond < 0 {
			lim.Rate = verdict.Rate{}
		}
	}
	if own.NoHeartbeat {
		lim.Heartbeat = verdict.Heartbeat{}
	}
}

// checkOwn checks limits of a connection, fills in their defaults, and rounds idle timeouts up to
// whole ticks.
func (set *Settings) checkOwn(own reap.ConnLimits) (reap.ConnLimits, error) {
	longest := min(configtable.TenYears, configtable.MaxTicks*set.Tick)
	for fields, i := reflect.ValueOf(&own).Elem(), 0; i < fields.NumField(); i++ {
		d, ok := fields.Field(i).Addr().Interface().(*time.Duration)
		switch {
		case !ok:
		case *d > longest:
			return own, fmt.Errorf("%s: %s of a connection is %v: set at most %v",
				set.form.Package, fields.Type().Field(i).Name, *d, longest)
		case *d < 0:
			*d = -1
		default:
			*d = (*d + set.Tick - 1) / set.Tick * set.Tick
		}
	}
	switch rate := &own.MinRate; {
	case rate.BytesPerSecond <= 0 && *rate != (reap.MinRate{BytesPerSecond: rate.BytesPerSecond}):
		return own, fmt.Errorf("%s: MinRate.BytesPerSecond of a connection is %d: set the bytes per second that a message needs",
			set.form.Package, rate.BytesPerSecond)
	case rate.BytesPerSecond > 0:
		rate.Window = cmp.Or(rate.Window, configtable.DefaultWindow)
		if min(rate.Window, rate.Grace) < 0 || max(rate.Window, rate.Grace) > longest || !rateFits(*rate) {
			return own, fmt.Errorf("%s: MinRate of a connection is %+v: set times that are not negative, and less than 2 GiB in a window",
				set.form.Package, *rate)
		}
	}
	return own, nil
}
