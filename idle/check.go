package idle

import (
	"log/slog"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/watch"
	"github.com/idlewheel/idlewheel/reap"
)

// form is the front end for package watch.
var form = watch.Form{
	Package: "idle", Table: configtable.Idle, Reset: []reap.Reason{reap.WriteStall, reap.OverLimit},
}

// check fills in the defaults of a Config. A tick that is not 0 is that of the Reaper, which cannot
// change.
func (cfg *Config) check(tick time.Duration) (watch.Config, error) {
	checked, err := form.Check(cfg, tick, func(refuse configtable.Refuse) {
		cfg.OutputLimit.check(refuse)
		const interval = configtable.Field("Heartbeat.Interval")
		// A Ping without Interval is refused already.
		if h := &cfg.Heartbeat; h.Interval == 0 && h.IsPong != nil && h.Ping == nil {
			refuse(string(interval), "%s is not set: set how long the peer may be silent before it gets a ping", interval)
		}
	})
	checked.Limits.Heartbeat.PongsOnly = cfg.Heartbeat.IsPong != nil
	return checked, err
}

// check checks limits that depend on each other.
func (o OutputLimit) check(refuse configtable.Refuse) {
	const hard, soft, total = configtable.Field("OutputLimit.Hard"), configtable.Field("OutputLimit.Soft"), configtable.Field("OutputLimit.Total")
	if o.Hard > 0 && o.Soft > o.Hard {
		refuse(string(soft), "%s is %d, above %s, which is %d: set less", soft, o.Soft, hard, o.Hard)
	}
	switch {
	case o.Total <= 0:
	case o.Total < o.Hard:
		refuse(string(total), "%s is %d, below %s, which is %d: set more", total, o.Total, hard, o.Hard)
	case o.Total < o.Soft:
		refuse(string(total), "%s is %d, below %s, which is %d: set more", total, o.Total, soft, o.Soft)
	}
}

// LogValue returns the settings that are not zero.
func (cfg Config) LogValue() slog.Value { return configtable.Idle.LogValue(&cfg) }
