package idle

import (
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"time"

	"github.com/panjf2000/gnet/v2"
)

const (
	defaultTick = 100 * time.Millisecond
	minTick     = time.Millisecond
	maxTicks    = 1 << 20 // of a timeout: the clock remembers so many moves, 8 MiB
	usualTicks  = 1 << 16 // at most, with the default tick
	maxTimeout  = 10 * 365 * 24 * time.Hour
	maxSlots    = 1 << 12
)

// Config says which connections are idle and what is told about them. It is copied by [Middleware].
type Config struct {
	// ReadTimeout is how long the peer may send nothing before the connection is read idle: it is reaped, or OnIdle of
	// an [IdleHandler] is asked. If zero, reads are not watched; since nothing else is watched yet, Middleware refuses
	// that. Negative values are refused.
	ReadTimeout time.Duration

	// Tick is the step in which deadlines are kept: a connection is judged at most two ticks after its timeout, never
	// before it. Each tick costs one wake-up of the process while there are connections. If zero, it is 100 ms; a tenth
	// of the timeout where that is shorter, but at least 1 ms; and more for timeouts above 109 minutes, of which it is
	// the 65,536th part. Values below 1 ms, above the timeout, and below a 1,048,576th of it are refused.
	Tick time.Duration

	// Logger gets one debug record per reaped connection and a warning where closing one fails. If nil, nothing is
	// logged.
	Logger *slog.Logger
}

// check returns the Config with its defaults filled in, or an error that joins all that is wrong with it.
func (cfg Config) check(next gnet.EventHandler) (Config, error) {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf("idle: "+format, args...)) }
	if next == nil {
		refuse("the handler is nil: pass the gnet.EventHandler to wrap")
	}
	switch {
	case cfg.ReadTimeout < 0:
		refuse("Config.ReadTimeout is %v: set a positive duration such as 60s", cfg.ReadTimeout)
	case cfg.ReadTimeout == 0:
		refuse("Config.ReadTimeout is not set, so no connection would ever be reaped: set it, for example to 60s")
	case cfg.ReadTimeout < minTick:
		refuse("Config.ReadTimeout is %v, less than the smallest tick: set at least %v", cfg.ReadTimeout, minTick)
	case cfg.ReadTimeout > maxTimeout:
		refuse("Config.ReadTimeout is %v: set at most ten years, %v", cfg.ReadTimeout, maxTimeout)
	}
	chosen := cfg.Tick != 0
	if !chosen {
		cfg.Tick = max(min(defaultTick, cfg.ReadTimeout/10), cfg.ReadTimeout/usualTicks, minTick)
	}
	switch {
	case cfg.Tick < 0:
		refuse("Config.Tick is %v: set a positive duration, or 0 for the default", cfg.Tick)
	case cfg.Tick < minTick:
		refuse("Config.Tick is %v: set at least %v", cfg.Tick, minTick)
	case chosen && cfg.ReadTimeout > 0 && cfg.Tick > cfg.ReadTimeout:
		refuse("Config.Tick is %v, longer than Config.ReadTimeout of %v: set a tenth of the timeout, or 0 for the default",
			cfg.Tick, cfg.ReadTimeout)
	case cfg.ReadTimeout/cfg.Tick > maxTicks:
		refuse("Config.ReadTimeout is %v, more than %d times Config.Tick of %v: set a Config.Tick of at least %v",
			cfg.ReadTimeout, maxTicks, cfg.Tick, cfg.ReadTimeout/maxTicks+1)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg, errors.Join(errs...)
}

// slots returns how many slots a wheel needs so that a timeout is less than one turn, up to a limit.
func (cfg Config) slots() int {
	ticks := uint(cfg.ReadTimeout/cfg.Tick) + 3 // the clock and the wheel round up, and now has a slot of its own
	return min(1<<bits.Len(ticks), maxSlots)
}
