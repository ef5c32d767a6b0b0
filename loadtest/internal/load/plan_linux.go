// Package load is the engine of a load test: one loop per process that opens thousands of
// connections and makes each behave as planned. A connection needs no goroutine and no timer, and
// about 110 bytes. Linux only.
package load

import (
	"math"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A Plan is the work of one process. Of its Setup it uses the targets, the sources, the rate and
// the patience.
type Plan struct {
	result.Setup
	First int // number of the first connection, counted over all processes
	Specs []Spec
}

// opensAt returns when connection n is opened, in nanoseconds after the first one. Because the rate
// rises linearly, a ramp opens half as many connections as the same time without one.
func (p *Plan) opensAt(n int) int64 {
	perSecond, ramp := p.Rate, p.Ramp.Seconds()
	seconds := float64(n)/perSecond + ramp/2
	if inRamp := perSecond * ramp / 2; float64(n) < inRamp {
		seconds = math.Sqrt(2 * float64(n) * ramp / perSecond)
	}
	return int64(seconds * 1e9)
}

// A Spec describes a group of connections with the same behaviour. Its Connections are open at the
// same time. A message has at least 2 bytes, with the newline at its end, except that of a Trickle.
type Spec struct {
	result.GroupSetup
	Deferred bool // it is opened by a Command
	// Apart groups have a client process of their own, so that other groups do not slow them down.
	Apart bool
}

// Behaviours of connections. A connection sends:
const (
	Heartbeat  = "heartbeat"   // a message per interval, answered or not
	PingPong   = "ping-pong"   // the next message as soon as the last one is answered
	OneByte    = "one-byte"    // messages byte by byte, one byte per interval
	HalfOpen   = "half-open"   // as a Heartbeat, until a Command makes it vanish
	Silent     = "silent"      // one message and then nothing
	Mute       = "mute"        // nothing at all
	Trickle    = "trickle"     // a byte per interval, and never a complete message
	SlowReader = "slow-reader" // as much as it can, and reads little per interval
	ZeroWindow = "zero-window" // as much as it can, and reads nothing
	// Churn sends a message and closes after the answer, by FIN and RST in turn. A new connection
	// replaces it.
	Churn = "churn"
)

// living reports whether a target should keep a connection with this behaviour open.
func living(behaviour string) bool {
	return slices.Contains([]string{Heartbeat, PingPong, OneByte, HalfOpen, Churn}, behaviour)
}

// reads reports whether it reads all data at once.
func reads(behaviour string) bool { return behaviour != SlowReader && behaviour != ZeroWindow }

// Echoes reports whether a connection with this behaviour expects the bytes it has sent.
func Echoes(behaviour string) bool { return living(behaviour) || behaviour == Silent }

// A Command changes what a loop does. It has one field set, or Finish and Drain. Open, Silence,
// LastMessage and Vanish are the name of a group.
type Command struct {
	Phase       string // begins the phase of this name; latencies count for it from now on
	Open        string // opens a deferred group
	Silence     string // makes a group stop sending
	LastMessage string // makes a group send one message now and then stop
	// Vanish ends connections without a packet, as if the machine lost its power.
	Vanish string
	// Finish ends the loop, when all messages are answered or the time Drain is over.
	Finish bool
	Drain  time.Duration
}

// A Report has the counts of a loop so far. Only the last one has the histograms of the groups, and
// the own delay.
type Report struct {
	result.Counts
	Recent *result.Histogram `json:",omitempty"` // latency since the last Report, corrected
	Last   bool
}
