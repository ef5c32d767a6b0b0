package sim

import (
	"reflect"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// Settings are the settings of a world. The fields have their names in the Config of a front end.
type Settings struct {
	ReadTimeout, WriteTimeout, AllTimeout                 time.Duration
	Jitter                                                float64
	FirstByteTimeout, HandshakeTimeout, WriteStallTimeout time.Duration
	HalfClosedTimeout                                     time.Duration // of idlenet
	OutputLimit                                           verdict.Output
	MinRate                                               verdict.Rate
	Heartbeat                                             verdict.Heartbeat
	MaxAge, MaxAgeGrace                                   time.Duration
	MaxConnections                                        int
	ShedProtect                                           time.Duration
	ObserveOnly                                           bool
	OutageGrace, Tick                                     time.Duration
}

// CopyTo sets the fields of a Config. The argument is a pointer to the Config.
func (s *Settings) CopyTo(cfg any) {
	copyFields(reflect.ValueOf(cfg).Elem(), reflect.ValueOf(s).Elem())
}

// Adopt takes the settings of a world from a Config. The argument is a pointer to the Config.
func (w *World) Adopt(cfg any) {
	copyFields(reflect.ValueOf(w.Set).Elem(), reflect.ValueOf(cfg).Elem())
	w.Longest = max(w.Longest, w.Set.longest())
	w.limited = []reap.Reason{reap.Drained}
	for k, d := range w.Set.limits() {
		if d > 0 {
			w.limited = append(w.limited, verdict.First+reap.Reason(k))
		}
	}
}

// copyFields copies the fields that two structs have in common by their names.
func copyFields(to, from reflect.Value) {
	for n := range to.NumField() {
		a, b := to.Field(n), from.FieldByName(to.Type().Field(n).Name)
		switch {
		case !b.IsValid():
		case a.Kind() == reflect.Struct:
			copyFields(a, b)
		default:
			a.Set(b)
		}
	}
}

// limits returns the limits of the reasons, in their order.
func (s *Settings) limits() []time.Duration {
	return []time.Duration{
		s.ReadTimeout, s.WriteTimeout, s.AllTimeout, s.FirstByteTimeout, s.HandshakeTimeout, s.WriteStallTimeout,
		s.OutputLimit.SoftFor, s.MinRate.Window, s.Heartbeat.Interval, s.HalfClosedTimeout, s.MaxAge,
	}
}

// deadlines returns the times that connections have.
func (s *Settings) deadlines() []time.Duration {
	return append(s.limits(), s.MinRate.Grace, s.Heartbeat.Retry, s.MaxAgeGrace, s.ShedProtect)
}

// longest returns the longest of the times, at least 200 ms.
func (s *Settings) longest() time.Duration {
	return max(200*time.Millisecond, slices.Max(s.deadlines()))
}

// shortestIdle returns the shortest idle timeout, or the longest limit if there is none.
func (w *World) shortestIdle() time.Duration {
	return shortest(w.Longest, w.Set.ReadTimeout, w.Set.AllTimeout, w.Set.Heartbeat.Interval)
}

// shortest returns the shortest of the times that are set, at most the given one.
func shortest(most time.Duration, all ...time.Duration) time.Duration {
	for _, d := range all {
		if d > 0 {
			most = min(most, d)
		}
	}
	return most
}

// chooseSettings sets one to four limits, and times that fit them.
func (w *World) chooseSettings() {
	s := &Settings{}
	for range 1 + w.Rand.IntN(4) {
		w.chooseLimit(s, w.Rand.IntN(13))
	}
	if w.Kind == NetworkOut {
		limit := w.Skewed(time.Second, 5*time.Second)
		*s = Settings{ReadTimeout: limit}
		if w.One(2) {
			*s = Settings{AllTimeout: limit}
		}
		if w.Family == Unix {
			w.Family = TCP
		}
	}
	if w.One(4) {
		s.Jitter = w.Rand.Float64() * 0.5
	}
	switch w.Rand.IntN(8) {
	case 0:
		if w.Kind != NetworkOut {
			s.OutageGrace = -1
		}
	case 1:
		s.OutageGrace = w.Limit()
	}
	w.Longest = s.longest()
	shortest := shortest(5*time.Second, s.deadlines()...)
	s.Tick = min(w.Skewed(5*time.Millisecond, 100*time.Millisecond), shortest/5)
	if w.Kind == NetworkOut {
		s.Tick = min(s.Tick, shortest/40)
	}
	w.Set = s
	w.Horizon = w.Now + w.Skewed(w.Longest, 6*w.Longest)
}

func (w *World) chooseLimit(s *Settings, which int) {
	timeouts := []*time.Duration{
		&s.ReadTimeout, &s.ReadTimeout, &s.ReadTimeout, &s.WriteTimeout, &s.AllTimeout,
		&s.FirstByteTimeout, &s.HandshakeTimeout, &s.WriteStallTimeout,
	}
	if which < len(timeouts) {
		*timeouts[which] = w.Limit()
		return
	}
	switch which - len(timeouts) {
	case 0:
		s.OutputLimit = verdict.Output{Soft: 10000, SoftFor: w.Limit()}
		if w.One(2) {
			s.OutputLimit.Hard = 30000
		}
	case 1:
		s.MinRate = verdict.Rate{BytesPerSecond: 1 + w.Rand.IntN(100), Window: w.Limit(), Always: w.One(2)}
		if w.One(2) {
			s.MinRate.Grace = w.Limit()
		}
	case 2:
		s.Heartbeat = verdict.Heartbeat{Interval: w.Limit(), Retry: w.Limit(), MaxMissed: 1 + w.Rand.IntN(3)}
		if w.One(3) {
			s.Heartbeat.Jitter = -1
		}
	case 3:
		s.MaxAge = w.Limit()
		if w.One(2) {
			s.MaxAgeGrace = w.Limit()
		}
	case 4:
		s.MaxConnections, s.ShedProtect = 5+w.Rand.IntN(60), w.Limit()/4
	}
}

// chooseTotal sets a limit of all output in some worlds.
func (w *World) chooseTotal() {
	own := w.Stream(0x707a3) // which leaves the older seeds of package idle as they are
	if w.Kind == NetworkOut || own.IntN(8) != 0 {
		return
	}
	limit := &w.Set.OutputLimit
	limit.Total = max(limit.Hard, limit.Soft, 5000+own.IntN(200_000))
	w.Reply = 40_000
}
