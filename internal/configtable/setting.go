// Package configtable holds the tables of the settings of idle.Config, idlenet.Config and
// server.Config: name, field, unit, range, what 0 means, and help. Flags, the limits file, JSON,
// logs, checks, errors and the documentation use these tables.
//
// The package does not import idle, idlenet and server, so that they can use it. Fields are found
// by reflection.
package configtable

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/reap"
)

// TenYears is the longest timeout.
const TenYears = 10 * 365 * 24 * time.Hour

const noMax = math.MaxInt64

// A Setting describes one field of a Config that is a duration, an int, a float64, a bool, a string
// or a list of strings.
type Setting struct {
	Name       string      // in flags, files, logs and JSON
	Field      string      // path of the field, such as "OutputLimit.Soft"
	Help       string      // the unit is in back quotes, as package flag has it
	Zero       string      // what 0 means for a number without a Default, if it is not "none"
	Default    any         // the value instead of 0, or the Field that has it
	Quiet      bool        // the Default is not filled in, so that reports leave it out
	Needs      Field       // the field is of no use without this one, and has no Default then
	Limit      string      // path of the field of verdict.Limits that it fills
	Reason     reap.Reason // of the connections that it closes
	Alone      bool        // it closes connections without a Reason of its own
	Negative   string      // what a negative value means; empty if it is refused
	Min, Max   int64       // of values above 0, without Ticks: nanoseconds, a number, or a part of 1
	Ticks      bool        // a deadline that is counted in ticks, from 1ms to ten years
	Adjustable bool        // POST /api/timeouts can change it
	Secret     bool        // the flag names a file with the value, and the value is never shown
	AtStart    bool        // a new value needs a restart; others apply to live connections
}

// A Table holds the settings of a Config, in the order of the documentation. An argument cfg of its
// methods is a pointer to a Config of that type.
type Table []Setting

// Names returns the names of all settings.
func (t Table) Names() (names []string) {
	for _, s := range t {
		names = append(names, s.Name)
	}
	return names
}

// Values yields the names and the values of all settings that are not secret. The value of a list
// is a text.
func (t Table) Values(cfg any) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for _, s := range t {
			if !s.Secret && !yield(s.Name, plain(s.Of(cfg))) {
				return
			}
		}
	}
}

// JSON returns what Values yields, with durations as text such as 1m30s.
func (t Table) JSON(cfg any) map[string]any {
	all := map[string]any{}
	for name, value := range t.Values(cfg) {
		if d, ok := value.(time.Duration); ok {
			value = d.String()
		}
		all[name] = value
	}
	return all
}

// LogValue returns what Values yields without zero values.
func (t Table) LogValue(cfg any) slog.Value {
	var attrs []slog.Attr
	for name, value := range t.Values(cfg) {
		if !reflect.ValueOf(value).IsZero() {
			attrs = append(attrs, slog.Any(name, value))
		}
	}
	return slog.GroupValue(attrs...)
}

// Changes returns what Values yields if it is another value than before.
func (t Table) Changes(before, after any) slog.Value {
	var attrs []slog.Attr
	old := maps.Collect(t.Values(before))
	for name, value := range t.Values(after) {
		if value != old[name] {
			attrs = append(attrs, slog.Any(name, value))
		}
	}
	return slog.GroupValue(attrs...)
}

// NameOf returns the name of the setting of a field, or "" if the field has none.
func (t Table) NameOf(field string) string {
	for _, s := range t {
		if s.Field == field {
			return s.Name
		}
	}
	return ""
}

// Of returns the field of a Config. The argument is a pointer to the Config.
func (s Setting) Of(cfg any) reflect.Value { return Field(s.Field).Of(cfg) }

// ZeroText returns what 0 means, or "" if the field is no number.
func (s Setting) ZeroText() string {
	switch d := s.Default.(type) {
	case nil:
		if s.Ticks || s.Max > 0 {
			return cmp.Or(s.Zero, "none")
		}
		return ""
	case Field:
		return "the value of " + Idle.NameOf(string(d))
	case time.Duration:
		return shortDuration(d)
	default:
		return fmt.Sprint(d)
	}
}

// Usage returns the help text of a flag, in two lines if it is long.
func (s Setting) Usage() string {
	var notes []string
	if zero := s.ZeroText(); zero != "" && zero != "none" {
		notes = append(notes, "0 is "+zero)
	}
	if s.Negative != "" {
		notes = append(notes, "a negative value is "+s.Negative)
	}
	if len(notes) == 0 {
		return s.Help
	}
	note := strings.Join(notes, "; ")
	if len(s.Help)+len(note) > 100 {
		return s.Help + ";\n" + note
	}
	return s.Help + "; " + note
}

// Mistake returns what to do about a value out of range, or "" if the value is in range.
func (s Setting) Mistake(v reflect.Value) string {
	if !isNumber(v.Type()) || v.IsZero() {
		return ""
	}
	switch least, most := s.bounds(); {
	case compare(v, 0) < 0 && s.Negative != "":
		return ""
	case compare(v, 0) < 0 && isDuration(v.Type()):
		return "set a positive duration such as 60s, or 0 for " + s.ZeroText()
	case compare(v, 0) < 0:
		return "set a positive number, or 0 for " + s.ZeroText()
	case compare(v, least) < 0:
		return fmt.Sprintf("set at least %s, or 0 for %s", boundText(v.Type(), least), s.ZeroText())
	case compare(v, most) > 0:
		return "set at most " + boundText(v.Type(), most)
	}
	return ""
}

// bounds returns the bounds of values above 0.
func (s Setting) bounds() (least, most int64) {
	if s.Ticks {
		return ms, age
	}
	return s.Min, s.Max
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
// "" if it is no number.
func (s Setting) Range(t reflect.Type) string {
	switch least, most := s.bounds(); {
	case !isNumber(t):
		return ""
	case least == 0:
		return "up to " + boundText(t, most)
	case most == noMax:
		return boundText(t, least) + " or more"
	default:
		return boundText(t, least) + " to " + boundText(t, most)
	}
}

func boundText(t reflect.Type, bound int64) string {
	if !isDuration(t) {
		return fmt.Sprint(bound)
	}
	if time.Duration(bound) == TenYears {
		return "ten years"
	}
	return shortDuration(time.Duration(bound))
}

// shortDuration returns a duration without its zero minutes and seconds.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func isDuration(t reflect.Type) bool { return t == reflect.TypeFor[time.Duration]() }

func isNumber(t reflect.Type) bool {
	return t.Kind() == reflect.Int || t.Kind() == reflect.Int64 || t.Kind() == reflect.Float64
}

// Adjustable returns the settings that Adjust can set.
func (t Table) Adjustable() Table {
	return slices.DeleteFunc(slices.Clone(t), func(s Setting) bool { return !s.Adjustable })
}

// Adjust sets adjustable settings. It returns an error that joins the names of others. It begins
// with the name of a package.
func (t Table) Adjust(pkg string, cfg any, timeouts map[string]time.Duration) error {
	var errs []error
	adjustable := t.Adjustable()
	for _, name := range slices.Sorted(maps.Keys(timeouts)) {
		i := slices.Index(adjustable.Names(), name)
		if i < 0 {
			names := strings.Join(adjustable.Names(), ", ")
			errs = append(errs, fmt.Errorf("%s: %.40q cannot be changed here: take %s", pkg, name, names))
			continue
		}
		adjustable[i].Of(cfg).SetInt(int64(timeouts[name]))
	}
	return errors.Join(errs...)
}
