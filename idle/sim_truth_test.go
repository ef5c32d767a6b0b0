package idle

import "time"

// A simInterval is a time in which something was so.
type simInterval struct{ from, to time.Duration }

func (i simInterval) length() time.Duration { return i.to - i.from }

// simIntervals are intervals in the order of their ends.
type simIntervals []simInterval

// add adds an interval that ends now. One that overlaps those before it swallows them.
func (all *simIntervals) add(from, to time.Duration) {
	list := *all
	for len(list) > 0 && list[len(list)-1].to >= from {
		from = min(from, list[len(list)-1].from)
		to = max(to, list[len(list)-1].to)
		list = list[:len(list)-1]
	}
	*all = append(list, simInterval{from, to})
}

// overlap returns how much of the intervals lies in a time, and how many of them do.
func (all simIntervals) overlap(from, to time.Duration) (sum time.Duration, n int) {
	for i := len(all) - 1; i >= 0 && all[i].to > from; i-- {
		if part := min(all[i].to, to) - max(all[i].from, from); part > 0 {
			sum += part
			n++
		}
	}
	return sum, n
}

// end returns the end of the interval in which an instant lies, or the instant: a question to the
// kernel that was asked meanwhile tells no more.
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

// merged returns the intervals with those joined that lie near each other, without short ones.
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

// A simTruth is what has physically happened to a connection so far.
type simTruth struct {
	arrival   time.Duration // of the last byte of the peer, or of the connection at the handler
	came      time.Duration // of the last byte of the peer
	handled   time.Duration // the last byte was read and its handler returned, or it was seen to wait
	anew      time.Duration // OnOpen has returned, or Touch, Release or Exempt was called
	anewFrom  time.Duration // that call began
	newSent   time.Duration // new bytes were sent
	anySent   time.Duration // bytes were sent, retransmissions included
	dated     time.Duration // the date that the kernel gave to new bytes: of their last retransmission
	took      time.Duration // the peer has acknowledged bytes
	tookSome  time.Duration // the same while more waited
	waits     time.Duration // output waits in the kernel since then, 0 if none does
	changed   time.Duration // the amount of output has changed
	soft      time.Duration // the buffer of the loop is above the soft limit since then, 0 if it is not
	softFrom  time.Duration // the same without dips that are too short to be seen
	dip       time.Duration // the last dip began
	message   time.Duration // a message is open since then, 0 if none is
	lastPing  time.Duration
	pings     int // since the last sign of life
	holds     int
	exempt    bool
	ready     bool
	ended     bool
	received  int
	unread    bool
	outbound  int
	open      int                        // connections of the server
	own       *Timeouts                  // of SetTimeouts
	events    [idleReasons]time.Duration // the last idle events, as of when they were judged
	delivered [idleReasons]time.Duration // the same, as of when OnIdle was called
}

// heard returns the latest instant from which silence may be counted.
func (t *simTruth) heard() time.Duration { return max(t.arrival, t.handled, t.anew) }
