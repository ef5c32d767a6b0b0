package verdict

import (
	"cmp"
	"math"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
)

// Evidence is the kernel's answer about a connection.
type Evidence struct {
	Found Finding
	Dated bool // the fields below are known: TCP on a Linux kernel that fills TCP_INFO
	// Step is the resolution of Silent and Quiet.
	Step time.Duration
	// Took is the duration of the query. The process may have been stopped before or after the
	// kernel answered.
	Took time.Duration

	Silent    time.Duration // since the last byte arrived, to within Step
	Quiet     time.Duration // since the last transmission or retransmission, to within Step
	Moved     uint32        // changes whenever new bytes are sent or sent bytes are acknowledged
	InFlight  bool          // sent bytes are not acknowledged yet
	Resent    bool          // the bytes in flight were retransmitted
	Counted   bool          // Moved counts sent bytes: Linux 4.19 and later
	Unsent    int           // bytes that the kernel has not sent yet
	Received  uint64        // bytes received
	Acked     uint64        // bytes that the peer has acknowledged
	HalfEnded bool          // the peer has ended its side of the connection, or reset it
	Queued    int           // bytes in the kernel that the peer has not acknowledged; -1 if unknown

	// Early is the number of segments that came before an earlier one, since the connection was
	// opened. It is 0 if none of their bytes waits for lost ones now, or if that is unknown, before
	// Linux 5.4. The kernel has no date of such bytes, but the last one came no later than the last
	// acknowledgement. That came Answered ago, to within Step.
	Early    uint32
	Answered time.Duration
}

// LastByte returns when the last byte arrived, at the latest query, or zero if that is unknown. The
// instant now is after the query.
func (ev *Evidence) LastByte(now mono.Time) mono.Time {
	if !ev.Dated || ev.Received == 0 {
		return 0
	}
	return now.Add(-ev.Took - ev.Silent)
}

// A Finding is the result of inspecting a socket without reading from it.
type Finding uint8

const (
	Nothing Finding = iota // no byte waits
	Unread                 // bytes of the peer wait to be read
	Ended                  // the peer has closed, or the connection is broken
)

// Hear updates the Facts with the kernel's answer about the last byte of the peer. It reports
// whether that byte is newer than the known ones. The instant now is after the query.
func (lim *Limits) Hear(f *Facts, ev *Evidence, now mono.Time) (later bool) {
	f.Unread = ev.Found == Unread
	if ev.Received == 0 && !f.Fresh { // bytes were read, so the answer is wrong
		ev.Dated = false
	}
	if ev.HalfEnded && f.EndedSince == 0 {
		f.EndedSince = now
	}
	arrived, isDated := now.Add(-ev.Took-ev.Silent), ev.Dated && ev.Received > 0
	last := Span{arrived.Add(-ev.Step), now.Add(ev.Step - ev.Silent)}
	if isDated {
		f.Fresh = false // even if a layer such as TLS has consumed all bytes
		f.ArrivedAfter = max(last.From, 1)
	}
	switch {
	case f.Unread:
		f.Heard, f.Fresh, later = At(now), false, true
	case isDated && last.From > f.Heard.To: // newer than the stamped bytes
		f.Heard, later = last, true
	case ev.Dated: // the byte may be older than its stamp, if a handler was slow
		f.HeardAt = min(max(arrived, f.Heard.From), f.Heard.To)
	}
	// The connection stays fresh after bytes that wait for lost ones: none of them could be read.
	if early := now.Add(ev.Step - ev.Answered); ev.Early != 0 && early > f.Heard.To {
		f.Heard.To, f.HeardAt, later = early, 0, true
	}
	if later { // a sign of life, which answers all pings
		f.Missed = 0
		if !f.Leaving {
			f.LastPing = f.Heard.To
		}
	}
	return later
}

// CheckOutput updates the Facts with the output in the kernel and in the event loop. The counter
// keeps Moved between checks. It reports whether new bytes were sent since the last check.
func (lim *Limits) CheckOutput(f *Facts, ev *Evidence, counter *uint32, now mono.Time) (sent bool) {
	taken := false // by the peer
	if ev.Dated {
		taken = ev.Moved != *counter
		*counter = ev.Moved
		sent = taken || !ev.Counted && ev.InFlight && !ev.Resent
		last := Span{now.Add(-ev.Quiet - ev.Took - ev.Step), now.Add(-ev.Quiet + ev.Step)}
		if sent { // a retransmission leaves Wrote alone
			f.Wrote = f.Wrote.Or(last)
		}
		f.WroteAt = min(max((last.From+last.To)/2, f.Wrote.From), f.Wrote.To)
		if taken && ev.Unsent+f.Output > 0 {
			f.Missed = 0 // the peer reads the output in front of the ping
		}
	} else { // only the amount of waiting output is known, and whether the peer still sends
		f.Blind = true
		waits := uint32(max(ev.Queued, 0) + f.Output)
		taken = waits != *counter || f.Heard.To > f.StalledSince
		*counter = waits
	}
	// Output in the loop that the kernel would accept is not the peer's fault.
	waits := ev.Queued > 0 || ev.Queued < 0 && f.Output > 0
	if taken {
		f.StalledSince = 0
	}
	f.StalledSince = when(waits, cmp.Or(f.StalledSince, now))
	isOver := lim.Output.Soft > 0 && f.Output > lim.Output.Soft
	f.OverSince = when(isOver, cmp.Or(f.OverSince, now))
	lim.checkLarge(f, ev, now)
	return sent
}

// checkLarge updates what the peer has taken of a Large. One begins if more bytes than the hard
// limit were written since the last check, or if that is unknown. It ends when half of the limit
// waits.
func (lim *Limits) checkLarge(f *Facts, ev *Evidence, now mono.Time) {
	l, hard := &f.Large, lim.Output.Hard
	taken := ev.Acked
	if !ev.Dated { // less waits when the peer has taken some
		taken = uint64(math.MaxInt - f.Output - max(ev.Queued, 0))
	}
	written := ev.Acked + uint64(f.Output+max(ev.Queued, 0))
	switch {
	case hard == 0 || f.Output == 0:
		*l = Large{}
		return
	case f.Output <= hard/2 || f.Output <= hard && l.Since == 0:
		*l = Large{}
	case l.Since != 0:
		if taken >= l.Taken+uint64(min(hard, LargePart)) {
			l.Since, l.Taken = now, taken
		}
		l.Least = min(l.Least, f.Output)
	case l.Written == 0 || !ev.Counted || written > l.Written+uint64(hard):
		*l = Large{Since: max(now, 1), Taken: taken, Least: f.Output}
	}
	l.Written = written
}

// CountReceived counts the bytes received in a window of Rate, which is set, and begins the next
// one. The counter is one more than Received at the beginning of the window, and never 0.
func (lim *Limits) CountReceived(f *Facts, ev *Evidence, counter *uint32, now mono.Time) {
	if !ev.Dated { // the rate is not known
		f.RatedSince, f.Counting = 0, false
		return
	}
	f.Taken = int(uint32(ev.Received) + 1 - *counter)
	// Waiting bytes may complete the message: the server has to read them first.
	enough := f.Taken >= lim.leastInWindow() || ev.Found == Unread
	passed := now.Add(-ev.Took) >= f.RatedSince.Add(lim.Rate.Window) && enough
	if passed || !f.Counting && now >= f.RatedSince {
		*counter = cmp.Or(uint32(ev.Received)+1, math.MaxUint32) // if it wraps, it counts a byte too many
		f.RatedSince, f.Counting, f.Taken = now, true, 0
	}
}
