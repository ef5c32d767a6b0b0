package settings

import (
	"fmt"
	"reflect"
	"strconv"
	"time"
)

// A value is the field of a setting. It implements flag.Getter, and Value of the package pflag of
// cobra.
type value struct{ field reflect.Value }

// String returns the value, or "" for zero, for which help texts show no default.
func (v value) String() string {
	if !v.field.IsValid() || v.field.IsZero() {
		return ""
	}
	return fmt.Sprint(v.field)
}

// Get returns the value: a time.Duration, an int, a float64 or a bool.
func (v value) Get() any { return v.field.Interface() }

// Type returns the name of the type for help texts.
func (v value) Type() string {
	if v.isDuration() {
		return "duration"
	}
	return v.field.Kind().String()
}

// IsBoolFlag reports whether the flag needs no value.
func (v value) IsBoolFlag() bool { return v.field.IsValid() && v.field.Kind() == reflect.Bool }

func (v value) isDuration() bool { return v.field.Type() == reflect.TypeFor[time.Duration]() }

// Set parses a value.
func (v value) Set(text string) error {
	switch {
	case v.isDuration():
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%.40q is not a duration such as 30s or 500ms", text)
		}
		v.field.SetInt(int64(d))
	case v.field.Kind() == reflect.Int:
		n, err := strconv.ParseInt(text, 0, strconv.IntSize)
		if err != nil {
			return fmt.Errorf("%.40q is not a whole number", text)
		}
		v.field.SetInt(n)
	case v.field.Kind() == reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%.40q is not a number such as 0.1", text)
		}
		v.field.SetFloat(f)
	default:
		on, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%.40q is neither true nor false", text)
		}
		v.field.SetBool(on)
	}
	return nil
}
