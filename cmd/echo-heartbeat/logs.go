package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/internal/logging"
)

// logFlags are the level and the format of the log.
type logFlags struct{ level, format string }

func (f *logFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.level, "log-level", "info", "lowest level that is logged: debug (each reap), info, warn or error")
	cmd.Flags().StringVar(&f.format, "log-format", "text", "text or json")
}

func (f *logFlags) logger(out io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, fmt.Errorf("--log-level is %q: take debug, info, warn or error", f.level)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch f.format {
	case "text":
		return logging.Wrap(slog.New(slog.NewTextHandler(out, opts))), nil
	case "json":
		opts.ReplaceAttr = durationAsText
		return logging.Wrap(slog.New(slog.NewJSONHandler(out, opts))), nil
	default:
		return nil, fmt.Errorf("--log-format is %q: take text or json", f.format)
	}
}

// durationAsText writes a duration as in 1m30s. The JSON handler would write nanoseconds.
func durationAsText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
