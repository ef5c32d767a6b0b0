package idlenet

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"runtime"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/watch"
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

// form is the front end for package watch.
var form = watch.Form{
	Package: "idlenet", Table: configtable.Net, Reset: []reap.Reason{reap.WriteStall}, AsksFirst: true,
}

// check fills in the defaults of a Config for the sockets of an address. A tick that is not 0 and
// the Config before are those of a Reaper, which cannot change all.
func (cfg *Config) check(addr net.Addr, tick time.Duration, before *Config) (watch.Config, error) {
	return form.Check(cfg, tick, func(refuse configtable.Refuse) {
		sources := cfg.Sources // the table has checked Connections and Rate
		sources.Connections, sources.Rate = max(sources.Connections, 0), max(sources.Rate, 0)
		if _, err := sourcelimit.New(sources); err != nil {
			refuse("Sources", "%s: %w", configtable.Field("Sources"), err)
		}
		if cfg.Goodbye != nil && cfg.MaxAge > 0 && cfg.MaxAgeGrace == 0 {
			refuse("MaxAgeGrace", "%s is 0, so Goodbye would never be called: set the time between Goodbye and the end",
				configtable.Field("MaxAgeGrace"))
		}
		cfg.checkSockets(addr, refuse)
		cfg.checkFixed(before, refuse)
	})
}

// checkFixed refuses changes of what cannot change. There is no Config before the first one.
func (cfg *Config) checkFixed(before *Config, refuse configtable.Refuse) {
	if before == nil {
		return
	}
	for _, field := range []configtable.Field{
		"Stamp", "AcceptRate", "Sources.Connections", "Sources.Rate", "Sources.IPv4Bits", "Sources.IPv6Bits",
		"Sources.Entries", "Sources.Exempt",
	} {
		if was := field.Of(before).Interface(); !reflect.DeepEqual(field.Of(cfg).Interface(), was) {
			refuse(string(field), "%s cannot change before the next start: leave it at %v", field, was)
		}
	}
}

// checkSockets refuses the limits that the kernel cannot keep for the sockets of an address.
func (cfg *Config) checkSockets(addr net.Addr, refuse configtable.Refuse) {
	if addr == nil || isTCP(addr) && runtime.GOOS == "linux" {
		return
	}
	for _, limit := range []struct {
		field   configtable.Field
		stamped bool // a stamp is enough
	}{
		{"ReadTimeout", true}, {"FirstByteTimeout", true}, {"Heartbeat.Interval", true},
		{"AllTimeout", false}, {"WriteTimeout", false}, {"MinRate.BytesPerSecond", false}, {"HalfClosedTimeout", false},
	} {
		switch {
		case limit.field.Of(cfg).IsZero(), cfg.Stamp && limit.stamped:
		case limit.stamped:
			refuse(string(limit.field), "%s is set, but the kernel tells only for TCP on Linux when bytes arrived: set %s",
				limit.field, configtable.Field("Stamp"))
		default:
			refuse(string(limit.field), "%s is set, but needs TCP on Linux", limit.field)
		}
	}
}

func isTCP(addr net.Addr) bool {
	_, is := addr.(*net.TCPAddr)
	return is
}

// checkSocketsOf is checkSockets for a Config that was checked before it was known what its sockets
// are.
func checkSocketsOf(cfg *Config, addr net.Addr) (err error) {
	cfg.checkSockets(addr, func(_, format string, args ...any) {
		err = errors.Join(err, fmt.Errorf("idlenet: "+format, args...))
	})
	return err
}

// checkOwn refuses the limits of a connection that the kernel cannot keep for its socket.
func checkOwn(n *conn, own ConnLimits, stamp bool) error {
	return checkSocketsOf(&Config{
		ReadTimeout: max(own.ReadTimeout, 0), AllTimeout: max(own.AllTimeout, 0), WriteTimeout: max(own.WriteTimeout, 0),
		MinRate: MinRate{BytesPerSecond: max(own.MinRate.BytesPerSecond, 0)}, Stamp: stamp,
	}, n.Front.own().LocalAddr())
}

// LogValue returns the settings that are not zero.
func (cfg Config) LogValue() slog.Value { return configtable.Net.LogValue(&cfg) }
