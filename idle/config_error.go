package idle

import (
	"fmt"
	"log/slog"

	"github.com/idlewheel/idlewheel/internal/setting"
)

// LogValue returns the settings that are not zero.
func (cfg Config) LogValue() slog.Value {
	var attrs []slog.Attr
	for s := range setting.All() {
		if v := s.Of(&cfg); !v.IsZero() {
			attrs = append(attrs, slog.Any(s.Name, v.Interface()))
		}
	}
	return slog.GroupValue(attrs...)
}

// A ConfigError is one mistake in a Config. [Middleware] and [Reaper.Update] return all mistakes,
// joined by errors.Join.
type ConfigError struct {
	// Field is the field at fault, such as "ReadTimeout" or "OutputLimit.Soft", or "" if the mistake
	// is not in one field.
	Field string
	// Setting is the name of the field in flags, files and logs, such as "output-soft-limit", or "" if
	// it has none.
	Setting string

	format string
	args   []any // a fieldPath stands for the name of a field
}

type fieldPath string

func newConfigError(field, format string, args []any) *ConfigError {
	return &ConfigError{Field: field, Setting: setting.NameOf(field), format: format, args: args}
}

// Error returns the text with fields named as in "Config.ReadTimeout".
func (e *ConfigError) Error() string {
	return "idle: " + e.Text(func(field, _ string) string { return "Config." + field })
}

// Text returns the text without "idle: ". It calls name for each field in it; setting is the name
// of the field in flags, or "".
func (e *ConfigError) Text(name func(field, setting string) string) string {
	args := make([]any, len(e.args))
	for i, arg := range e.args {
		if field, ok := arg.(fieldPath); ok {
			arg = name(string(field), setting.NameOf(string(field)))
		}
		args[i] = arg
	}
	return fmt.Sprintf(e.format, args...)
}
