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
	if cfg.OutputMarks.High == 0 && cfg.OutputMarks.OnWritable != nil {
		cfg.OutputMarks.Low = 0 // the marks are off
	}
	checked, err := form.Check(cfg, tick, func(refuse configtable.Refuse) {
		cfg.OutputLimit.check(refuse)
		cfg.OutputMarks.check(refuse)
		const ping = configtable.Field("Heartbeat.Ping")
		if h := &cfg.Heartbeat; h.Interval == 0 && h.IsPong != nil && h.Ping == nil {
			refuse(string(ping), "%s is nil: set the func of a ping", ping)
		}
	})
	checked.Limits.Heartbeat.PongsOnly = cfg.Heartbeat.IsPong != nil && cfg.Heartbeat.Interval > 0
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
