package configtable

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A Field is the path of a field of a Config. In the arguments of Errorf it stands for its name in
// the text.
type Field string

// Of returns the field of a Config. The argument is a pointer to the Config.
func (f Field) Of(cfg any) reflect.Value {
	v := reflect.ValueOf(cfg).Elem()
	for name := range strings.SplitSeq(string(f), ".") {
		v = v.FieldByName(name)
	}
	return v
}

// An Error is an error with the names of fields in its text.
type Error struct {
	table  Table
	format string
	args   []any
}

// Errorf is fmt.Errorf for errors about a Config.
func (t Table) Errorf(format string, args ...any) *Error { return &Error{t, format, args} }

// Error returns the text with fields named as in "Config.AcceptRate".
func (e *Error) Error() string {
	return e.Text(func(field, _ string) string { return "Config." + field })
}

// Text returns the text. It calls name for each field in it; setting is "" for a field without one.
func (e *Error) Text(name func(field, setting string) string) string {
	args := slices.Clone(e.args)
	for i, arg := range args {
		if field, ok := arg.(Field); ok {
			args[i] = name(string(field), e.table.NameOf(string(field)))
		}
	}
	return fmt.Errorf(e.format, args...).Error()
}

// Unwrap returns the error among the arguments for %w.
func (e *Error) Unwrap() error { return errors.Unwrap(fmt.Errorf(e.format, e.args...)) }
