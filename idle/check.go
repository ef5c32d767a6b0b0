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
// change. Everything else can, so the Config before does not matter.
func (cfg *Config) check(tick time.Duration, _ *Config) (watch.Config, error) {
	checked, err := form.Check(cfg, tick, func(refuse configtable.Refuse) {
		cfg.OutputLimit.check(refuse)
		cfg.OutputMarks.check(refuse)
		const interval = configtable.Field("Heartbeat.Interval")
		// A Ping without Interval is refused already.
		if h := &cfg.Heartbeat; h.Interval == 0 && h.IsPong != nil && h.Ping == nil {
			refuse(string(interval), "%s is not set: set how long the peer may be silent before it gets a ping", interval)
		}
	})
	checked.Limits.Heartbeat.PongsOnly = cfg.Heartbeat.IsPong != nil
	return checked, err
}

func (o OutputLimit) check(refuse configtable.Refuse) {
	const hard, soft, total = configtable.Field("OutputLimit.Hard"), configtable.Field("OutputLimit.Soft"), configtable.Field("OutputLimit.Total")
	if o.Hard > 0 && o.Soft > o.Hard {
		refuse(string(soft), "%s is %d, above %s, which is %d: set less", soft, o.Soft, hard, o.Hard)
	}
	if o.Total <= 0 || o.Total >= max(o.Hard, o.Soft) {
		return
	}
	largest, bytes := hard, o.Hard
	if o.Soft > o.Hard {
		largest, bytes = soft, o.Soft
	}
	refuse(string(total), "%s is %d, below %s, which is %d: set more", total, o.Total, largest, bytes)
}

// LogValue returns the settings that are not zero.
func (cfg Config) LogValue() slog.Value { return configtable.Idle.LogValue(&cfg) }
