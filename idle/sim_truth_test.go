package idle

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// A simInterval is the time between two instants.
type simInterval struct{ from, to time.Duration }

func (i simInterval) length() time.Duration { return i.to - i.from }

// simIntervals are intervals in the order of their ends.
type simIntervals []simInterval

// add adds an interval that ends now. It swallows earlier intervals that it overlaps.
func (all *simIntervals) add(from, to time.Duration) {
	list := *all
	for len(list) > 0 && list[len(list)-1].to >= from {
		from = min(from, list[len(list)-1].from)
		to = max(to, list[len(list)-1].to)
		list = list[:len(list)-1]
	}
	*all = append(list, simInterval{from, to})
}

// overlap returns the length of the parts of the intervals within a time, and their number.
func (all simIntervals) overlap(from, to time.Duration) (sum time.Duration, n int) {
	for i := len(all) - 1; i >= 0 && all[i].to > from; i-- {
		if part := min(all[i].to, to) - max(all[i].from, from); part > 0 {
			sum += part
			n++
		}
	}
	return sum, n
}

// end returns the end of the interval that contains an instant, or the instant. The answer to a
// question at that instant is as old as the end of the interval.
func (all simIntervals) end(at time.Duration) time.Duration {
	for i := len(all) - 1; i >= 0 && all[i].to > at; i-- {
		if all[i].from <= at {
			return all[i].to
		}
	}
	return at
}

// since returns the length of the intervals that end after an instant.
func (all simIntervals) since(at time.Duration) (sum time.Duration) {
	for i := len(all) - 1; i >= 0 && all[i].to > at; i-- {
		sum += all[i].length()
	}
	return sum
}

// merged joins intervals that are near each other, and drops short ones.
func (all simIntervals) merged(near, least time.Duration) (list simIntervals) {
	for _, i := range all {
		if n := len(list); n > 0 && i.from-list[n-1].to <= near {
			list[n-1].to = max(list[n-1].to, i.to)
			continue
		}
		list = append(list, i)
	}
	kept := list[:0]
	for _, i := range list {
		if i.length() >= least {
			kept = append(kept, i)
		}
	}
	return kept
}

// A simTruth is the physical history of a connection so far.
type simTruth struct {
	arrival   time.Duration // the last byte of the peer, or OnOpen if that is later
	came      time.Duration // the last byte of the peer
	handled   time.Duration // OnTraffic for the last byte has returned, or the byte was found waiting
	returned  time.Duration // the handler has returned from OnTraffic for the last byte that it read
	anew      time.Duration // OnOpen has returned, or Touch, Release or Exempt was called
	anewFrom  time.Duration // start of that call
	newSent   time.Duration // new bytes were sent
	anySent   time.Duration // bytes were sent, retransmissions included
	dated     time.Duration // the kernel's date of new bytes: their last retransmission
	took      time.Duration // the peer has acknowledged bytes
	tookSome  time.Duration // the peer has acknowledged bytes while more waited
	waits     time.Duration // output waits in the kernel since then, 0 if none waits
	changed   time.Duration // the amount of output has changed
	soft      time.Duration // the loop buffers more than the soft limit since then, or 0
	softFrom  time.Duration // the same, ignoring dips that are too short to be seen
	dip       time.Duration // start of the last dip
	message   time.Duration // a message is open since then, 0 if none is open
	lastPing  time.Duration
	pings     int // since the peer was last heard
	holds     int
	exempt    bool
	ready     bool
	ended     bool
	received  int
	unread    bool
	resent    bool // bytes in flight were retransmitted, at the last question
	outbound  int
	seen      int                                // output when OnTraffic returned last, or less
	open      int                                // connections of the server
	own       *Timeouts                          // set by SetTimeouts
	events    [verdict.IdleReasons]time.Duration // verdicts of the last idle events
	delivered [verdict.IdleReasons]time.Duration // calls of OnIdle for them
}

// heard returns the latest instant from which the Reaper may count silence.
func (t *simTruth) heard() time.Duration { return max(t.arrival, t.handled, t.anew) }
