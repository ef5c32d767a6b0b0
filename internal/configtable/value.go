package configtable

import (
	"flag"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A Value is the field of a setting. It implements flag.Getter, and Value of the package pflag of
// cobra. The first Set of a list replaces it, and the next ones append to it.
type Value struct {
	field reflect.Value
	set   bool
}

// AddFlag adds a flag that sets the field of a Config. The argument is a pointer to the Config, and
// the value of the field is the default.
func (s Setting) AddFlag(set *flag.FlagSet, cfg any) { set.Var(s.Value(cfg), s.Name, s.Usage()) }

// Value returns the Value of a Config. The argument is a pointer to the Config.
func (s Setting) Value(cfg any) *Value { return &Value{field: s.Of(cfg)} }

// String returns the value, or "" for zero, for which help texts show no default.
func (v *Value) String() string {
	if !v.field.IsValid() || v.field.IsZero() {
		return ""
	}
	return fmt.Sprint(plain(v.field))
}

// plain returns the value of a field, and a list as text.
func plain(field reflect.Value) any {
	if list, ok := field.Interface().([]string); ok {
		return strings.Join(list, ", ")
	}
	return field.Interface()
}

// Get returns the value of the field.
func (v *Value) Get() any { return v.field.Interface() }

// Type returns the name of the type for help texts.
func (v *Value) Type() string {
	if isDuration(v.field.Type()) {
		return "duration"
	}
	return v.field.Kind().String()
}

// IsBoolFlag reports whether the flag needs no value.
func (v *Value) IsBoolFlag() bool { return v.field.IsValid() && v.field.Kind() == reflect.Bool }

// Set parses a value.
func (v *Value) Set(text string) error {
	var parsed any = text
	var err error
	var want string
	switch kind := v.field.Kind(); {
	case isDuration(v.field.Type()):
		parsed, err = time.ParseDuration(text)
		want = "not a duration such as 30s or 500ms"
	case kind == reflect.Int:
		parsed, err = strconv.ParseInt(text, 0, strconv.IntSize)
		want = "not a whole number"
	case kind == reflect.Float64:
		parsed, err = strconv.ParseFloat(text, 64)
		want = "not a number such as 0.1"
	case kind == reflect.Bool:
		parsed, err = strconv.ParseBool(text)
		want = "neither true nor false"
	case kind == reflect.Slice && v.set:
		parsed = append(v.field.Interface().([]string), text)
	case kind == reflect.Slice:
		parsed = []string{text}
	}
	if err != nil {
		return fmt.Errorf("%.40q is %s", text, want)
	}
	v.field.Set(reflect.ValueOf(parsed).Convert(v.field.Type()))
	v.set = true
	return nil
}
