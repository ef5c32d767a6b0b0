package server

import (
	"errors"
	"flag"
	"log/slog"

	"github.com/idlewheel/idlewheel/internal/setting"
	"github.com/idlewheel/idlewheel/settings"
)

// AddFlags adds a flag for each setting of the server, such as addr and drain-spread, to a FlagSet.
// The table of them is in docs/operating.md. The values of the Config are the defaults, and Parse
// changes them. It reads Admin.Token from the file that admin-token-file names.
//
// Package settings adds the flags of Idle. [settings.Explain] names the flags in errors of New and
// Run.
func (cfg *Config) AddFlags(set *flag.FlagSet) {
	for _, s := range setting.Server {
		if s.Secret {
			set.Func(s.Name, s.Usage(), func(file string) (err error) {
				cfg.Admin.Token, err = settings.ReadToken(file)
				return err
			})
			continue
		}
		s.AddFlag(set, cfg)
	}
}

// LogValue returns the settings that are not zero, without Idle, which is logged by itself.
func (cfg Config) LogValue() slog.Value { return setting.Server.LogValue(&cfg) }

// field is the path of a field in the text of an error.
type field = setting.Field

// errorf is fmt.Errorf for errors that name fields. [settings.Explain] can name flags instead.
func errorf(format string, args ...any) error { return setting.Server.Errorf(format, args...) }

func (cfg *Config) ranges() error {
	var errs []error
	setting.Server.CheckRanges(cfg, func(_, format string, args ...any) {
		errs = append(errs, errorf("server: "+format, args...))
	})
	return errors.Join(errs...)
}
