// Package load is the engine of a load test: one loop per process that opens thousands of
// connections and makes each behave as planned. A connection needs no goroutine and no timer, and
// less than 100 bytes. Linux only.
package load

import (
	"math"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A Plan is the work of one process. Durations are nanoseconds in JSON.
type Plan struct {
	Targets  []string      // at least one ip:port; connections take them in turn
	Source   string        // prefix of the source addresses; empty: the kernel chooses
	Sources  int           // number of source addresses, at least 1
	First    int           // number of the first connection, counted over all processes
	Rate     float64       // new connections per second
	Ramp     time.Duration // the rate rises linearly from 0 to Rate during this time
	Patience time.Duration // limit for connecting, and for an answer
	Specs    []Spec
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

// A Spec describes a group of connections with the same behaviour.
type Spec struct {
	Name        string
	Behaviour   Behaviour
	Connections int           // open at the same time
	Interval    time.Duration // between actions
	Jitter      float64       // largest deviation as a part of Interval, 0 to 0.5
	Size        int           // bytes of a message, with the newline at its end; at least 2
	Timeout     time.Duration // idle timeout of the target; 0 if it is unknown or does not apply
	Deferred    bool          // it is opened by a Command
	// Apart groups have a client process of their own, so that other groups do not slow them down.
	Apart bool
}

// A Behaviour defines what an open connection does.
type Behaviour string

// A connection of each Behaviour sends:
const (
	Heartbeat  Behaviour = "heartbeat"   // a message per interval, answered or not
	PingPong   Behaviour = "ping-pong"   // the next message as soon as the last one is answered
	OneByte    Behaviour = "one-byte"    // messages byte by byte, one byte per interval
	HalfOpen   Behaviour = "half-open"   // as a Heartbeat, until a Command makes it vanish
	Silent     Behaviour = "silent"      // one message and then nothing
	Mute       Behaviour = "mute"        // nothing at all
	Trickle    Behaviour = "trickle"     // a byte per interval, and never a complete message
	SlowReader Behaviour = "slow-reader" // as much as it can, and reads little per interval
	ZeroWindow Behaviour = "zero-window" // as much as it can, and reads nothing
	// Churn sends a message and closes after the answer, by FIN and RST in turn. A new connection
	// replaces it.
	Churn Behaviour = "churn"
)

// living reports whether a target should keep such a connection open.
func (b Behaviour) living() bool {
	return slices.Contains([]Behaviour{Heartbeat, PingPong, OneByte, HalfOpen, Churn}, b)
}

// reads reports whether it reads all data at once.
func (b Behaviour) reads() bool { return b != SlowReader && b != ZeroWindow }

// Echoes reports whether the connection expects the bytes it has sent.
func (b Behaviour) Echoes() bool { return b.living() || b == Silent }

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
