// Package load is the engine of a load test: one loop in one process that opens thousands of connections and lets each behave as it was
// unexpected. It has no goroutine and no timer for each of them, and less than a hundred bytes. It runs on Linux.
package load

import (
	"math"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A Plan is what one process does. Durations are in nanoseconds in JSON.
type Plan struct {
	Targets  []string      // ip:port; connections go to them by turns
	Source   string        // the prefix from which connections come, such as 127.0.0.0/8; empty for what the system chooses
	Sources  int           // how many addresses of it
	First    int           // number of the first connection among those of all processes
	Rate     float64       // connections to begin in a second
	Ramp     time.Duration // over which that rate is reached, evenly
	Patience time.Duration // for being connected, and for answers
	Specs    []Spec
}

// opensAt returns how many nanoseconds after the first one connection n is to be begun: the rate grows evenly during the ramp, in which
// half as many are begun as without.
func (p *Plan) opensAt(n int) int64 {
	perSecond, ramp := p.Rate, p.Ramp.Seconds()
	seconds := float64(n)/perSecond + ramp/2
	if inRamp := perSecond * ramp / 2; float64(n) < inRamp {
		seconds = math.Sqrt(2 * float64(n) * ramp / perSecond)
	}
	return int64(seconds * 1e9)
}

// A Spec describes a group of connections that behave alike.
type Spec struct {
	Name        string
	Behaviour   Behaviour
	Connections int           // at a time
	Interval    time.Duration // between what it does
	Jitter      float64       // part of Interval by which each moment differs at most, 0 to 0.5
	Size        int           // bytes of a message, the newline at its end included
	// Timeout is after what time of silence the target closes them, 0 if that is not known or does not apply.
	Timeout time.Duration
	// Deferred says that it is not opened before a Command says so.
	Deferred bool
}

// A Behaviour is what a connection does once it is open.
type Behaviour string

const (
	// Heartbeat sends a message in each interval, whether or not the last was answered.
	Heartbeat Behaviour = "heartbeat"
	// PingPong sends the next message as soon as the last is answered.
	PingPong Behaviour = "ping-pong"
	// OneByte sends messages byte by byte, one in each interval.
	OneByte Behaviour = "one-byte"
	// HalfOpen is a Heartbeat until it is unexpected to vanish.
	HalfOpen Behaviour = "half-open"
	// Churn sends a message, and closes when it is answered, by FIN and by RST in turns. Another one is opened for it.
	Churn Behaviour = "churn"
	// Silent sends one message and nothing ever after.
	Silent Behaviour = "silent"
	// Mute sends nothing at all.
	Mute Behaviour = "mute"
	// Trickle sends a byte in each interval that never become a message.
	Trickle Behaviour = "trickle"
	// SlowReader sends as much as it can, and reads a little in each interval.
	SlowReader Behaviour = "slow-reader"
	// ZeroWindow sends as much as it can, and reads nothing.
	ZeroWindow Behaviour = "zero-window"
)

// living reports whether a target has to keep such a connection.
func (b Behaviour) living() bool {
	switch b {
	case Heartbeat, PingPong, OneByte, HalfOpen, Churn:
		return true
	}
	return false
}

// reads reports whether it reads whatever comes.
func (b Behaviour) reads() bool { return b != SlowReader && b != ZeroWindow }

// Echoes reports whether what comes has to be what it has sent.
func (b Behaviour) Echoes() bool { return b.living() || b == Silent }

// A Command changes what a loop does. One of its fields is set.
type Command struct {
	// Phase is the name of the phase that begins: what is measured from now on counts for it.
	Phase string `json:",omitempty"`
	// Open is the name of a group that waits and is to be opened.
	Open string `json:",omitempty"`
	// Silence is the name of a group that sends nothing from now on.
	Silence string `json:",omitempty"`
	// LastMessage is the name of a group that sends one message now and nothing after it.
	LastMessage string `json:",omitempty"`
	// Vanish is the name of a group whose machine loses its power: its connections are gone without a word.
	Vanish string `json:",omitempty"`
	// Finish ends the loop.
	Finish bool `json:",omitempty"`
}

// A Report is what a loop has found so far. Histograms are in the last only.
type Report struct {
	Groups   []result.Group
	Failures result.Failures `json:",omitempty"`
	Notes    []string        `json:",omitempty"`
	Behind   time.Duration   // by how much the loop is behind what it should have done
	Last     bool
}

// Add adds what another loop has found at the same time.
func (r *Report) Add(o *Report) {
	r.Groups = result.AddGroups(r.Groups, o.Groups)
	r.Failures = r.Failures.Add(o.Failures)
	r.Behind = max(r.Behind, o.Behind)
	for _, note := range o.Notes {
		if !slices.Contains(r.Notes, note) {
			r.Notes = append(r.Notes, note)
		}
	}
}
