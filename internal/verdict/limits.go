package verdict

import (
	"math"
	"time"
)

// Limits are what a connection is judged by. A limit of 0 is off. Immutable once in use.
type Limits struct {
	Read, Write, All time.Duration // idle timeouts
	Jitter           float64       // the greatest share of an idle timeout that is added to it
	FirstByte        time.Duration
	Handshake        time.Duration
	Stall            time.Duration // of output
	Output           Output
	Rate             Rate
	Heartbeat        Heartbeat
	Age, AgeGrace    time.Duration
	Drain            Drain

	// Grace bounds how long verdicts are put off after an outage, see [Away]. If negative, they are
	// not put off, and Hold does not apply.
	Grace time.Duration
	// Hold bounds how long a verdict is held while nothing is heard from any connection; never more
	// than its own limit.
	Hold time.Duration

	Tick    time.Duration
	Horizon time.Duration // each connection is judged at least once in it

	// Previous are the limits that applied until Since, nil for the first ones. A deadline that a
	// change has brought forward has passed when the limits changed, and not before.
	Previous *Limits
	Since    time.Duration
}

// Output bounds the bytes that wait in the buffer of a connection.
type Output struct {
	Hard    int           // bytes
	Soft    int           // bytes
	SoftFor time.Duration // the time for which Soft may be exceeded
}

// Rate is the least that must come in while a message is open.
type Rate struct {
	BytesPerSecond int
	Window         time.Duration // over which it is counted
	Grace          time.Duration // from the beginning of a message to that of its first window
	Always         bool          // a message is always open
}

// Heartbeat says when a silent peer is asked for a sign of life.
type Heartbeat struct {
	Interval  time.Duration
	Retry     time.Duration
	MaxMissed int
	Jitter    float64 // the greatest share of Interval that is added to it
	PongsOnly bool    // only a pong is a sign of life, other bytes are none
}

// A Drain says when connections are closed because the server stops. The zero Drain is none.
type Drain struct {
	Began    time.Duration
	Spread   time.Duration // in which the idle connections are closed
	Deadline time.Duration // from Began; all others are closed by then
}

// ageSpread is the share of Age by which each connection lives longer or shorter. gRPC has the
// same.
const ageSpread = 0.1

const (
	// busyFor is how long after its last byte a connection is busy, for a drain.
	busyFor = time.Second
	// drainPoll is the interval at which a drain checks whether waiting output has been sent.
	drainPoll = busyFor / 8
	// hardPoll is the interval at which output is checked against the hard limit, quietPoll that on
	// an event loop that hears nothing.
	hardPoll  = time.Second
	quietPoll = 8 * time.Second
	// pollsPerLimit is how often output is checked within the time that it may wait.
	pollsPerLimit = 4
	// holdPolls is how often a held verdict is reviewed within the time for which it is held.
	holdPolls = 16
)

// IdleLimit returns the idle timeout of a reason, 0 if there is none.
func (lim *Limits) IdleLimit(r Reason) time.Duration {
	switch r {
	case ReadIdle:
		return lim.Read
	case WriteIdle:
		return lim.Write
	default:
		return lim.All
	}
}

// PollOutput returns the interval at which the output of a connection is checked, 0 if output is
// not limited.
func (lim *Limits) PollOutput() time.Duration { return lim.poll(pollsPerLimit, hardPoll) }

// PollQuiet is PollOutput for the connections of an event loop that hears nothing.
func (lim *Limits) PollQuiet() time.Duration { return lim.poll(1, quietPoll) }

func (lim *Limits) poll(perLimit, hard time.Duration) (every time.Duration) {
	for _, limit := range [...]struct {
		on    bool
		every time.Duration
	}{
		{lim.Stall > 0, lim.Stall / perLimit},
		{lim.Output.Soft > 0, lim.Output.SoftFor / perLimit},
		{lim.Output.Hard > 0, hard},
	} {
		if limit.on && (every == 0 || limit.every < every) {
			every = limit.every
		}
	}
	if every == 0 {
		return 0
	}
	return max(every, lim.Tick)
}

// leastInWindow returns how many bytes must come in a window of Rate.
func (lim *Limits) leastInWindow() int {
	return int(math.Ceil(float64(lim.Rate.BytesPerSecond) * lim.Rate.Window.Seconds()))
}

// Share returns a part of a duration.
func Share(d time.Duration, part float64) time.Duration { return time.Duration(part * float64(d)) }
