package configtable

import (
	"errors"
	"strings"
)

// Explain returns an error as one line for operators. Settings are named by prefix and their name:
// with the prefix "--" they are flags, as in "--read-timeout". Errors that errors.Join has joined
// are separated by semicolons. The names of packages at the beginning, as in "idle: ", are left
// out.
func Explain(err error, prefix string) string {
	text := err.Error()
	if named, ok := err.(interface {
		Text(name func(field, setting string) string) string
	}); ok {
		text = named.Text(func(field, setting string) string {
			if setting == "" {
				return "Config." + field
			}
			return prefix + setting
		})
	} else if inner := errors.Unwrap(err); inner != nil {
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
	for _, name := range []string{"idle: ", "idlenet: ", "settings: ", "server: ", "admin: ", "sourcelimit: "} {
		text = strings.TrimPrefix(text, name)
	}
	return strings.ReplaceAll(text, "\n", "; ")
}
