package setting

import (
	"errors"
	"fmt"
	"slices"
)

// A Field in the arguments of Errorf is the path of a field. It stands for its name in the text.
type Field string

// A fieldError is an error with the names of fields in its text.
type fieldError struct {
	table  Table
	format string
	args   []any
}

// Errorf is fmt.Errorf for errors about a Config. The error names fields as in "Config.AcceptRate".
// Its method Text(name func(field, setting string) string) string names them as name does, which
// gets "" for a field without a setting.
func (t Table) Errorf(format string, args ...any) error { return &fieldError{t, format, args} }

func (e *fieldError) Error() string {
	return e.Text(func(field, _ string) string { return "Config." + field })
}

func (e *fieldError) Text(name func(field, setting string) string) string {
	args := slices.Clone(e.args)
	for i, arg := range args {
		if field, ok := arg.(Field); ok {
			args[i] = name(string(field), e.table.NameOf(string(field)))
		}
	}
	return fmt.Errorf(e.format, args...).Error()
}

func (e *fieldError) Unwrap() error { return errors.Unwrap(fmt.Errorf(e.format, e.args...)) }
