// Package setting holds the one table of the settings of idle.Config: name, field, unit, range,
// what 0 means, and help. Flags, the limits file, JSON, logs, checks and the documentation use this
// table.
//
// The package does not import idle, so that idle can use it. Fields are found by reflection.
package setting

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"reflect"
	"strings"
	"time"
)

// TenYears is the longest timeout.
const TenYears = 10 * 365 * 24 * time.Hour

const noMax = math.MaxInt64

// A Scope says when a new value takes effect.
type Scope int

// The scopes of settings.
const (
	AtReload      Scope = iota // Reaper.Update applies it to live connections
	PerConnection              // the same, and a connection can have a value of its own
	AtStart                    // Reaper.Update cannot change it
)

// String returns the scope as the documentation names it.
func (s Scope) String() string {
	return [...]string{"at reload", "at reload, per connection", "at start"}[s]
}

// A Setting describes one field of idle.Config that is a duration, an int, a float64 or a bool.
type Setting struct {
	Name       string // in flags, files, logs and JSON
	Field      string // path of the field, such as "OutputLimit.Soft"
	Help       string // the unit is in back quotes, as package flag has it
	Zero       string // what 0 means; empty for a bool
	Negative   string // what a negative value means; empty if it is refused
	Min, Max   int64  // of values above 0: nanoseconds, a number, or a part of 1
	Ticks      bool   // a deadline that is counted in ticks
	Adjustable bool   // POST /api/timeouts can change it
	Scope      Scope
}

// All yields the settings in the order of the documentation.
func All() iter.Seq[Setting] {
	return func(yield func(Setting) bool) {
		for _, s := range table {
			if !yield(s) {
				return
			}
		}
	}
}

// Values yields the names and the values of all settings of a Config. The argument is a pointer to
// an idle.Config.
func Values(cfg any) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, s := range table {
			if !yield(s.Name, s.Of(cfg).Interface()) {
				return
			}
		}
	}
}

// NameOf returns the name of the setting of a field, or "" if the field has none.
func NameOf(field string) string {
	for _, s := range table {
		if s.Field == field {
			return s.Name
		}
	}
	return ""
}

// Of returns the field of a Config. The argument is a pointer to an idle.Config.
func (s Setting) Of(cfg any) reflect.Value {
	v := reflect.ValueOf(cfg).Elem()
	for name := range strings.SplitSeq(s.Field, ".") {
		v = v.FieldByName(name)
	}
	return v
}

// Mistake returns what to do about a value out of range, or "" if the value is in range.
func (s Setting) Mistake(v reflect.Value) string {
	if v.Kind() == reflect.Bool || v.IsZero() {
		return ""
	}
	switch {
	case compare(v, 0) < 0 && s.Negative != "":
		return ""
	case compare(v, 0) < 0 && isDuration(v.Type()):
		return "set a positive duration such as 60s, or 0 for " + s.Zero
	case compare(v, 0) < 0:
		return "set a positive number, or 0 for " + s.Zero
	case compare(v, s.Min) < 0:
		return fmt.Sprintf("set at least %s, or 0 for %s", boundText(v.Type(), s.Min), s.Zero)
	case compare(v, s.Max) > 0:
		return "set at most " + boundText(v.Type(), s.Max)
	}
	return ""
}

// compare compares a value with a bound. NaN is above every bound.
func compare(v reflect.Value, bound int64) int {
	if v.Kind() != reflect.Float64 {
		return cmp.Compare(v.Int(), bound)
	}
	if math.IsNaN(v.Float()) {
		return 1
	}
	return cmp.Compare(v.Float(), float64(bound))
}

// Range returns the values above 0 that are allowed for a field of type t, such as "1ms to 24h", or
// "" for a bool.
func (s Setting) Range(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Bool:
		return ""
	case s.Min == 0:
		return "up to " + boundText(t, s.Max)
	case s.Max == noMax:
		return boundText(t, s.Min) + " or more"
	}
	return boundText(t, s.Min) + " to " + boundText(t, s.Max)
}

// Unit returns the unit of a setting, or "" for a bool. It stands in back quotes in Help.
func (s Setting) Unit() string {
	_, rest, _ := strings.Cut(s.Help, "`")
	unit, _, _ := strings.Cut(rest, "`")
	return unit
}

func boundText(t reflect.Type, bound int64) string {
	if !isDuration(t) {
		return fmt.Sprint(bound)
	}
	if time.Duration(bound) == TenYears {
		return "ten years"
	}
	text := time.Duration(bound).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func isDuration(t reflect.Type) bool { return t == reflect.TypeFor[time.Duration]() }
