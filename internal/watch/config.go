package watch

import (
	"cmp"
	"errors"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// A Form describes a front end. Immutable.
type Form struct {
	Package string            // the name of its package, for errors
	Table   configtable.Table // of its Config
	Reset   []reap.Reason     // the default of Config.Reset
	// AsksFirst says that a look begins with a question to the kernel. Otherwise the front end sees
	// messages, and what it knows may be enough.
	AsksFirst bool
}

// A Config has the settings that the Configs of all front ends share.
type Config struct {
	Front any // the checked Config of the front end, a pointer

	// Fields of the same name and type are in the Config of the front end.
	MaxConnections, KeepClosed             int
	ShedProtect, TCPKeepAlive, OutageGrace time.Duration
	CloseGrace                             time.Duration // 0 if gnet closes connections
	Tick                                   time.Duration
	ObserveOnly                            bool
	Decides                                bool // there is an OnIdle
	Reset                                  []reap.Reason
	Logger                                 *slog.Logger

	// Limits are those of the table. The front end may complete them.
	Limits verdict.Limits
}

// maxGrace is the default of OutageGrace: the longest time between two retransmissions of a Linux
// kernel (TCP_RTO_MAX).
const maxGrace = 2 * time.Minute

// Check fills in the defaults of a Config of the front end, given by a pointer. It returns the
// shared Config, or an error that joins all mistakes. A tick that is not 0 cannot change. The front
// end adds checks of its own.
func (form *Form) Check(front any, tick time.Duration, own func(refuse configtable.Refuse)) (Config, error) {
	var errs []error
	refuse := func(field, format string, args ...any) {
		errs = append(errs, &reap.ConfigError{
			Package: form.Package, Field: field, Setting: form.Table.NameOf(field), Err: form.Table.Errorf(format, args...),
		})
	}
	clearOff(front)
	form.Table.Fill(front)
	if reset := configtable.Field("Reset").Of(front); reset.IsNil() {
		reset.Set(reflect.ValueOf(form.Reset))
	}
	cloneReset(front)
	form.Table.CheckEach(front, refuse)
	cfg := Config{Front: front, Limits: form.Table.Limits(front)}
	cfg.copyFields(front)
	cfg.checkParts(refuse)
	own(refuse)
	if !form.Table.Watches(front) {
		refuse("", "no limit is set, so no connection would ever be closed: set one, for example %s to 60s", configtable.Field("ReadTimeout"))
	}
	if tick != 0 && cfg.Tick != 0 && cfg.Tick != tick {
		refuse("Tick", "%s is %v: it stays %v until the next start", configtable.Field("Tick"), cfg.Tick, tick)
	} else if tick != 0 {
		cfg.Tick = tick
	}
	if len(errs) == 0 {
		form.Table.ChooseTick(front, &cfg.Tick, tick != 0, refuse)
	}
	cfg.Logger = logging.Wrap(cfg.Logger)
	configtable.Field("Tick").Of(front).SetInt(int64(cfg.Tick))
	configtable.Field("Logger").Of(front).Set(reflect.ValueOf(cfg.Logger))
	return cfg, errors.Join(errs...)
}

// cloneReset gives a Config a list Reset of its own.
func cloneReset(front any) {
	reset := configtable.Field("Reset").Of(front)
	reset.Set(reflect.ValueOf(slices.Clone(reset.Interface().([]reap.Reason))))
}

func (cfg *Config) copyFields(front any) {
	own, from := reflect.ValueOf(cfg).Elem(), reflect.ValueOf(front).Elem()
	for i := range own.NumField() {
		if f := from.FieldByName(own.Type().Field(i).Name); f.IsValid() && f.Type() == own.Field(i).Type() {
			own.Field(i).Set(f)
		}
	}
	onIdle := from.FieldByName("OnIdle")
	cfg.Decides = onIdle.IsValid() && !onIdle.IsNil()
	cfg.ShedProtect = cmp.Or(cfg.ShedProtect, configtable.DefaultShedProtect)
	lim := &cfg.Limits
	lim.Resend = verdict.Resend
	lim.Heartbeat.Jitter = max(lim.Heartbeat.Jitter, 0)
	if lim.Grace, lim.Hold = cfg.OutageGrace, cfg.OutageGrace; cfg.OutageGrace == 0 {
		lim.Grace, lim.Hold = maxGrace, configtable.TenYears
	}
}

// clearOff clears the Heartbeat of a Config without Interval: an operator switches heartbeats off
// by the interval alone, and the program has set the Ping.
func clearOff(front any) {
	const ping, interval = configtable.Field("Heartbeat.Ping"), configtable.Field("Heartbeat.Interval")
	if ping.Of(front).IsNil() || !interval.Of(front).IsZero() {
		return
	}
	for _, rest := range []configtable.Field{"Heartbeat.Retry", "Heartbeat.MaxMissed", "Heartbeat.Jitter"} {
		rest.Of(front).SetZero()
	}
}

func (cfg *Config) checkParts(refuse configtable.Refuse) {
	const ping = configtable.Field("Heartbeat.Ping")
	if cfg.Limits.Heartbeat.Interval != 0 && ping.Of(cfg.Front).IsNil() {
		refuse(string(ping), "%s is nil: set the func of a ping, or no %s", ping, configtable.Field("Heartbeat.Interval"))
	}
	const rate = configtable.Field("MinRate.BytesPerSecond")
	if r := cfg.Limits.Rate; !rateFits(r) {
		refuse(string(rate), "%s is %d for %v: set less than 2 GiB in a window", rate, r.BytesPerSecond, r.Window)
	}
	for _, r := range cfg.Reset {
		if r < verdict.First || r > verdict.Last {
			refuse("Reset", "%s has %v: set reasons of package reap", configtable.Field("Reset"), r)
		}
	}
}

// warn logs a warning if read idle always comes before the first ping. That is no mistake: a held
// connection is never read idle, and others may have limits of their own.
func (cfg *Config) warn() {
	lim, h := &cfg.Limits, &cfg.Limits.Heartbeat
	switch {
	case lim.Read == 0 || h.PongsOnly || cfg.Decides:
		return
	// Without heartbeats the interval is 0. Both jitters use the same random number of a
	// connection, so the extremes suffice.
	case lim.Read > h.Interval, lim.Read+verdict.Share(lim.Read, lim.Jitter) > h.Interval+verdict.Share(h.Interval, h.Jitter):
		return
	}
	whole := h.Interval + verdict.Share(h.Interval, h.Jitter) + time.Duration(h.MaxMissed)*h.Retry
	cfg.Logger.Warn("read-timeout closes a silent connection before heartbeat sends a ping: set read-timeout longer than all pings take, "+
		"or leave one of both out, unless SetLimits changes them for the connections that are pinged",
		"read-timeout", lim.Read, "heartbeat", h.Interval, "pings-take", whole)
}

// rateFits reports whether the bytes of a window fit the counter of a connection.
func rateFits(r verdict.Rate) bool {
	return r.Window <= 0 || r.BytesPerSecond <= math.MaxInt32/int(max(r.Window/time.Second, 1))
}
