package configtable

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

const (
	minDefaultTick = 20 * time.Millisecond
	maxDefaultTick = 100 * time.Millisecond
	minTick        = time.Millisecond

	// MaxTicks is the largest number of ticks of a duration: an instant has 32 bits.
	MaxTicks = 1 << 30
)

// A Deadline is a duration of a Config that is counted in ticks.
type Deadline struct {
	Field Field
	Value time.Duration
}

// Deadlines returns the durations that are counted in ticks.
func (t Table) Deadlines(cfg any) (all []Deadline) {
	for _, s := range t {
		if s.Ticks {
			all = append(all, Deadline{Field(s.Field), time.Duration(s.Of(cfg).Int())})
		}
	}
	return all
}

// Shortest returns the shortest duration that is set, or one of ten years if there is none.
func (t Table) Shortest(cfg any) Deadline {
	shortest := Deadline{Value: TenYears}
	for _, s := range t.Deadlines(cfg) {
		if s.Value > 0 && s.Value < shortest.Value {
			shortest = s
		}
	}
	return shortest
}

// Fill sets the defaults that depend on no other setting, or only on one that is set. If that one
// is switched off, it takes the default back.
func (t Table) Fill(cfg any) {
	for _, s := range t {
		if s.Default == nil || s.Quiet {
			continue
		}
		v, value := s.Of(cfg), reflect.ValueOf(s.Default)
		if of, ok := s.Default.(Field); ok {
			value = of.Of(cfg)
		}
		value = value.Convert(v.Type())
		switch isOff := s.Needs != "" && s.Needs.Of(cfg).IsZero(); {
		case isOff && v.Equal(value):
			v.SetZero()
		case !isOff && v.IsZero() && compare(value, 0) > 0: // otherwise it is refused
			v.Set(value)
		}
	}
}

// Limits returns the limits that the fields of a Config fill.
func (t Table) Limits(cfg any) (lim verdict.Limits) {
	for _, s := range t {
		if s.Limit != "" {
			Field(s.Limit).Of(&lim).Set(s.Of(cfg))
		}
	}
	return lim
}

// Watches reports whether a Config has a setting that alone closes connections.
func (t Table) Watches(cfg any) bool {
	for _, s := range t {
		if v := s.Of(cfg); (s.Alone || s.Reason != 0) && !v.IsZero() && (v.Int() > 0 || s.Negative == "") {
			return true
		}
	}
	return false
}

// A Refuse notes a mistake in a field of a Config.
type Refuse func(field, format string, args ...any)

// CheckEach checks each setting by itself, and refuses a setting without the one that it needs.
func (t Table) CheckEach(cfg any, refuse Refuse) {
	for _, s := range t {
		v := s.Of(cfg)
		if s.Mistake(v) != "" {
			refuse(s.Field, "%s is %v: %s", Field(s.Field), v.Interface(), s.Mistake(v))
		}
		if s.Needs != "" && !v.IsZero() && s.Needs.Of(cfg).IsZero() {
			refuse(s.Field, "%s is %v without %s: set both, or neither", Field(s.Field), v.Interface(), s.Needs)
		}
	}
}

// ChooseTick chooses the tick of a Config, or checks the one that is set. A tick that is fixed
// cannot be changed.
func (t Table) ChooseTick(cfg any, tick *time.Duration, fixed bool, refuse Refuse) {
	shortest := t.Shortest(cfg)
	longest := slices.MaxFunc(t.Deadlines(cfg), func(a, b Deadline) int { return cmp.Compare(a.Value, b.Value) })
	least := max(longest.Value/MaxTicks+1, minTick)
	chosen := *tick != 0
	if !chosen {
		*tick = max(defaultTick(shortest.Value), least)
	}
	const field = Field("Tick")
	switch {
	case *tick > shortest.Value && fixed:
		refuse(string(shortest.Field), "%s is %v, shorter than %s of %v, which only a new start changes: set a longer timeout",
			shortest.Field, shortest.Value, field, *tick)
	case *tick > shortest.Value && chosen:
		refuse(string(shortest.Field), "%s is %v, longer than %s of %v: set a longer timeout, or a tick of a tenth of it",
			field, *tick, shortest.Field, shortest.Value)
	case *tick > shortest.Value:
		refuse(string(shortest.Field), "%s is %v and %s is %v, too far apart for one tick: set a longer or a shorter one",
			shortest.Field, shortest.Value, longest.Field, longest.Value)
	case *tick < least:
		refuse(string(longest.Field), "%s is %v, more than %d times %s of %v: set a shorter timeout, or a tick of at least %v",
			longest.Field, longest.Value, MaxTicks, field, *tick, least)
	}
}

// defaultTick returns the tick for a shortest timeout: two ticks are 1 % of it, if the tick then is
// neither too short to be cheap nor longer than any user notices.
func defaultTick(shortest time.Duration) time.Duration {
	fine := min(max(shortest/200, minDefaultTick), maxDefaultTick)
	return min(fine, shortest/10)
}
