package settings

import (
	"errors"
	"strings"

	"github.com/idlewheel/idlewheel/idle"
)

// Explain returns an error as one line for operators. Settings are named by prefix and their name:
// with the prefix "--" they are flags, as in "--read-timeout". Errors that errors.Join has joined
// are separated by semicolons. The prefixes "idle: " and "settings: " are left out.
func Explain(err error, prefix string) string {
	if e, ok := err.(*idle.ConfigError); ok {
		return e.Text(func(field, setting string) string {
			if setting == "" {
				return "Config." + field
			}
			return prefix + setting
		})
	}
	text := err.Error()
	if inner := errors.Unwrap(err); inner != nil {
		if before, ok := strings.CutSuffix(text, inner.Error()); ok {
			text = before + Explain(inner, prefix)
		}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok && errors.Join(joined.Unwrap()...).Error() == text {
		var parts []string
		for _, e := range joined.Unwrap() {
			parts = append(parts, Explain(e, prefix))
		}
		text = strings.Join(parts, "; ")
	}
	text = strings.TrimPrefix(strings.TrimPrefix(text, "idle: "), "settings: ")
	return strings.ReplaceAll(text, "\n", "; ")
}
