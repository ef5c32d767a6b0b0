package idle

import (
	"math"
	"time"
)

// firstPing is the greatest share of Heartbeat.Interval that is added to it, so that connections that came together are not
// asked together. NATS has the same.
const firstPing = 0.2

// ageSpread is the share of MaxAge by which each connection lives longer or shorter. gRPC has the same.
const ageSpread = 0.1

// limits are the Config as it is judged by, with the idle timeouts of one connection or of those that have none of their own.
// Immutable.
type limits struct {
	Timeouts                 // squeezed, if they are
	own             Timeouts // as they were set
	jitter          float64
	firstByte       time.Duration
	handshake       time.Duration
	stall           time.Duration
	output          OutputLimit
	rate            MinRate
	interval, retry time.Duration // of heartbeats
	maxMissed       int
	pongs           bool // only they count as an answer
	age, grace      time.Duration
	poll            time.Duration // how often output is looked at; 0 if it is not limited
	tick            time.Duration
	drain           drain
	horizon         time.Duration // each connection is looked at once in it, whatever is limited
	before          *limits       // those that held until since; nil for the first ones
	since           time.Duration
}

// A drain says when connections go because the server does. The zero drain is none.
type drain struct {
	began    time.Duration
	spread   time.Duration // in which those go that are idle when it is their turn
	deadline time.Duration // from began: by then all others go
}

// A squeeze shortens idle timeouts. The zero squeeze does not.
type squeeze struct {
	by    float64       // from 0 to 1
	least time.Duration // to which by 1 brings them
}

// of returns the timeout to which a squeeze brings one.
func (s squeeze) of(d time.Duration) time.Duration {
	if d <= s.least {
		return d
	}
	return d - share(d-s.least, s.by)
}

// busyFor is how long after its last byte a connection is busy, for a drain.
const busyFor = time.Second

// outputLook is how often a drain looks whether output that waited is gone.
const outputLook = busyFor / 8

// newLimits returns the limits of a Config that was checked, with the given idle timeouts.
func newLimits(cfg *Config, timeouts Timeouts, horizon time.Duration) *limits {
	lim := &limits{
		Timeouts: timeouts, jitter: cfg.Jitter, firstByte: cfg.FirstByteTimeout, handshake: cfg.HandshakeTimeout,
		stall: cfg.WriteStallTimeout, output: cfg.OutputLimit, rate: cfg.MinRate,
		interval: cfg.Heartbeat.Interval, retry: cfg.Heartbeat.Retry, maxMissed: cfg.Heartbeat.MaxMissed,
		pongs: cfg.Heartbeat.IsPong != nil, age: cfg.MaxAge, grace: cfg.MaxAgeGrace,
		tick: cfg.Tick, horizon: horizon,
	}
	for _, limit := range []struct {
		on    bool
		every time.Duration
	}{
		{lim.stall > 0, lim.stall / 4},
		{lim.output.Soft > 0, lim.output.SoftFor / 4},
		{lim.output.Hard > 0, time.Second},
	} {
		if every := max(limit.every, cfg.Tick); limit.on && (lim.poll == 0 || every < lim.poll) {
			lim.poll = every
		}
	}
	return lim
}

// idle returns the idle timeout of a kind, 0 if there is none.
func (lim *limits) idle(k Kind) time.Duration {
	switch k {
	case ReadIdle:
		return lim.Read
	case WriteIdle:
		return lim.Write
	default:
		return lim.All
	}
}

// leastInWindow returns how many bytes must come in a window of MinRate.
func (lim *limits) leastInWindow() int {
	return int(math.Ceil(float64(lim.rate.BytesPerSecond) * lim.rate.Window.Seconds()))
}

// share returns a part of a duration.
func share(d time.Duration, part float64) time.Duration { return time.Duration(part * float64(d)) }
