package verdict

import (
	"math/bits"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/reap"
)

// Limits are the limits of a connection. A limit of 0 is off. Immutable once in use.
type Limits struct {
	Read, Write, All time.Duration // idle timeouts
	Jitter           float64       // the largest share of an idle timeout that is added to it
	FirstByte        time.Duration
	Handshake        time.Duration
	Stall            time.Duration // of output
	Output           Output
	Rate             Rate
	Heartbeat        Heartbeat
	HalfClosed       time.Duration
	Age, AgeGrace    time.Duration
	Drain            Drain

	// Grace bounds the time by which an outage puts off verdicts, see [Away]. If negative, verdicts
	// are not put off, and Hold does not apply.
	Grace time.Duration
	// Resend is added to a chance to be heard after an outage: the constant of this name.
	Resend time.Duration
	// Hold bounds the time for which a verdict is held while nothing is heard from any connection.
	// A verdict is never held for longer than its own limit.
	Hold time.Duration

	Tick    time.Duration
	Horizon time.Duration // the longest time between two judgements of a connection

	// Previous are the limits that applied until Since, nil for the first ones. If a change brings
	// a deadline forward into the past, the deadline counts as passed at the change.
	Previous *Limits
	Since    mono.Time
}

// Output limits the bytes that wait in the buffer of a connection.
type Output struct {
	Hard    int           // bytes; for a larger one, see [Large]
	Soft    int           // bytes
	SoftFor time.Duration // the time for which Soft may be exceeded
	Total   int           // bytes of all connections; 0 or less if there is no limit
}

// Rate is the minimum rate of received bytes while a message is open.
type Rate = reap.MinRate

// Heartbeat says when a silent peer is pinged.
type Heartbeat struct {
	Interval  time.Duration
	Retry     time.Duration
	MaxMissed int
	Jitter    float64 // the largest share of Interval that is added to it
	PongsOnly bool    // only a pong is a sign of life, other bytes are not
}

// whole returns the time from a byte to the verdict, without Jitter.
func (h *Heartbeat) whole() time.Duration { return h.Interval + time.Duration(h.MaxMissed)*h.Retry }

// A Drain says when connections are closed because the server stops. The zero Drain closes none.
type Drain struct {
	Began    mono.Time
	Spread   time.Duration // in which the idle connections are closed
	Deadline time.Duration // from Began; all others are closed by then
}

// ageSpread is the share of Age by which the age of each connection varies, as in gRPC.
const ageSpread = 0.1

// LeastAge returns the age at which the first connections reach Age.
func (lim *Limits) LeastAge() time.Duration { return lim.Age - Share(lim.Age, ageSpread) }

const (
	// busyFor is the time after its last byte for which a connection is busy, for a drain.
	busyFor = time.Second
	// drainPoll is the interval at which a drain checks whether waiting output has been sent.
	drainPoll = busyFor / 8
	// hardPoll is the interval at which output is checked against Hard and Total. On an event loop
	// that hears nothing it is quietPoll.
	hardPoll  = time.Second
	quietPoll = 8 * time.Second
	// LargeFor is the time in which the peer must take Hard bytes of a Large, LargePart at most: a
	// higher limit must not ask for a faster peer.
	LargeFor  = 10 * time.Second
	LargePart = 1 << 20
	// pollsPerLimit is the number of checks of output within the time that it may wait.
	pollsPerLimit = 4
	// halfClosedPolls is the number of questions within HalfClosed.
	halfClosedPolls = 4
	// holdPolls is the number of reviews of a held verdict within the limit.
	holdPolls = 16
)

// ShortestIdle returns the shortest silence after which a connection may be closed, 0 if there is
// none.
func (lim *Limits) ShortestIdle() time.Duration {
	return Shorter(Shorter(lim.Read, lim.All), lim.Heartbeat.Interval)
}

// LongestIdle returns the longest time in which a living peer has to be heard, 0 if there is none.
func (lim *Limits) LongestIdle() (longest time.Duration) {
	longest = max(lim.Read, lim.All)
	longest += Share(longest, lim.Jitter)
	if h := &lim.Heartbeat; h.Interval > 0 {
		longest = max(longest, h.whole()+Share(h.Interval, h.Jitter))
	}
	return longest
}

// Shorter returns the shorter of two limits. A limit of 0 is none.
func Shorter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// PollOutput returns the interval at which the output of a connection is checked, 0 if output is
// not limited.
func (lim *Limits) PollOutput() time.Duration { return lim.poll(pollsPerLimit, hardPoll) }

// PollQuiet is PollOutput for the connections of an event loop that hears nothing.
func (lim *Limits) PollQuiet() time.Duration { return lim.poll(1, quietPoll) }

func (lim *Limits) poll(perLimit, hard time.Duration) (every time.Duration) {
	every = lim.Stall / perLimit
	if lim.Output.Soft > 0 {
		every = Shorter(every, lim.Output.SoftFor/perLimit)
	}
	if lim.Output.Hard > 0 || lim.Output.Total > 0 {
		every = Shorter(every, hard)
	}
	if every == 0 {
		return 0
	}
	return max(every, lim.Tick)
}

// PollKernel returns how often the kernel must be asked about each connection, because no event
// tells that a deadline has begun to count. If it is 0, it need not be asked. A front end that
// sweeps its connections finds output that waits without looking at each of them.
func (lim *Limits) PollKernel(sweeps bool) (every time.Duration) {
	if !sweeps {
		every = lim.Stall
	}
	if lim.HalfClosed > 0 {
		every = Shorter(every, max(lim.HalfClosed/halfClosedPolls, lim.Tick))
	}
	return every
}

// leastInWindow returns the number of bytes that a window of Rate requires, rounded up. It needs
// whole numbers: in floating point 25 bytes a second for 280 ms are more than 7.
func (lim *Limits) leastInWindow() int {
	high, low := bits.Mul64(uint64(lim.Rate.BytesPerSecond), uint64(lim.Rate.Window))
	n, rest := bits.Div64(high, low, uint64(time.Second))
	if rest > 0 {
		n++
	}
	return int(n)
}

// Share returns the given part of a duration.
func Share(d time.Duration, part float64) time.Duration { return time.Duration(part * float64(d)) }
