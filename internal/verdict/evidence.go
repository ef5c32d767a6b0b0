package verdict

import "time"

// Evidence is the kernel's answer about a connection.
type Evidence struct {
	Found Finding
	Dated bool // what follows is known: TCP on a Linux kernel that fills TCP_INFO
	// Step is the step in which the kernel counts Silent and Quiet.
	Step time.Duration
	// Took is how long the question took. The process may have been stopped before or after the
	// kernel answered.
	Took time.Duration

	Silent   time.Duration // since the last byte arrived, to within Step
	Quiet    time.Duration // since something was sent last, retransmissions included, to within Step
	Moved    uint32        // changes whenever new bytes are sent or sent bytes are acknowledged
	InFlight bool          // something was sent that is not acknowledged yet
	Resent   bool          // what is in flight was retransmitted
	Counted  bool          // Moved counts the bytes that were sent: Linux 4.19 and later
	Unsent   int           // bytes that the kernel has not sent yet
	Received uint64        // bytes that came in
	Acked    uint64        // bytes that the peer has acknowledged
	Queued   int           // bytes that the kernel has and the peer has not acknowledged; -1 if unknown
}

// A Finding is what a look at a socket finds, without reading from it.
type Finding uint8

const (
	Nothing Finding = iota // no byte waits
	Unread                 // bytes of the peer wait to be read
	Ended                  // the peer has closed, or the connection is broken
)

// Hear takes into account what the kernel knows of the peer's last byte, and reports whether it is
// later than was known. The kernel was asked before now.
func (lim *Limits) Hear(f *Facts, ev *Evidence, now time.Duration) (later bool) {
	f.Unread = ev.Found == Unread
	if ev.Received == 0 && !f.Fresh { // bytes came in, so this answer is not to be trusted
		ev.Dated = false
	}
	latest := now - ev.Silent
	arrived := latest - ev.Took
	if ev.Dated && ev.Received > 0 {
		f.Fresh = false // also if a layer such as TLS has kept all bytes for itself
		f.ArrivedAfter = max(arrived-ev.Step, 1)
	}
	switch {
	case f.Unread:
		f.Heard, f.Fresh = At(now), false
		later = true
	case !ev.Dated:
	case arrived-ev.Step > f.Heard.To && ev.Received > 0: // bytes after those that were stamped
		f.Heard, f.Fresh = Span{arrived - ev.Step, latest + ev.Step}, false
		later = true
	default: // a handler that took its time is not held against the peer
		f.HeardAt = min(max(arrived, f.Heard.From), f.Heard.To)
	}
	if later {
		f.alive(lim)
	}
	return later
}

// alive takes note of a sign of life: no ping is without an answer.
func (f *Facts) alive(lim *Limits) {
	f.Missed = 0
	if lim.Heartbeat.PongsOnly && !f.Leaving {
		f.LastPing = f.Heard.To
	}
}

// CheckOutput takes into account what the kernel and the event loop have of output. The counter is
// Moved of the last check. It reports whether new bytes were sent since then.
func (lim *Limits) CheckOutput(f *Facts, ev *Evidence, counter *uint32, now time.Duration) (sent bool) {
	taken := false // by the peer
	if ev.Dated {
		changed := ev.Moved != *counter
		*counter = ev.Moved
		taken, sent = changed, changed
		if !ev.Counted {
			sent = changed || ev.InFlight && !ev.Resent
		}
		f.sent(Span{now - ev.Quiet - ev.Took - ev.Step, now - ev.Quiet + ev.Step}, sent)
		if taken && ev.Unsent+f.Output > 0 {
			f.Missed = 0 // the peer takes what lies before the ping
		}
	} else { // the amount that waits is all that can be seen, and whether the peer goes on to send
		f.Blind = true
		waits := uint32(max(ev.Queued, 0) + f.Output)
		taken = waits != *counter || f.Heard.To > f.StalledSince
		*counter = waits
	}
	// What the loop has and the kernel would take is not the peer's fault.
	waits := ev.Queued > 0 || ev.Queued < 0 && f.Output > 0
	switch {
	case !waits:
		f.StalledSince = 0
	case taken || f.StalledSince == 0:
		f.StalledSince = now
	}
	lim.checkSoft(f, now)
	return sent
}

func (lim *Limits) checkSoft(f *Facts, now time.Duration) {
	switch {
	case lim.Output.Soft == 0 || f.Output <= lim.Output.Soft:
		f.OverSince = 0
	case f.OverSince == 0:
		f.OverSince = now
	}
}

// sent takes into account when the kernel has sent something last, new or again.
func (f *Facts) sent(when Span, isNew bool) {
	if isNew { // otherwise it was that or before it
		f.Wrote = f.Wrote.Or(when)
	}
	f.WroteAt = min(max((when.From+when.To)/2, f.Wrote.From), f.Wrote.To)
}

// CountReceived takes into account how many bytes have come, and begins a window of Rate or the next
// one. The counter is one more than Received at the beginning of the window, and never 0.
func (lim *Limits) CountReceived(f *Facts, ev *Evidence, counter *uint32, now time.Duration) {
	switch {
	case f.RatedSince == 0:
		return
	case !ev.Dated: // the rate is not known
		f.RatedSince, f.Counting = 0, false
		return
	}
	f.Taken = int(uint32(ev.Received) + 1 - *counter)
	// Bytes that wait may be the end of the message: the server has to read them.
	enough := f.Taken >= lim.leastInWindow() || ev.Found == Unread
	passed := f.Counting && now-ev.Took >= f.RatedSince+lim.Rate.Window && enough
	if passed || !f.Counting && now >= f.RatedSince {
		*counter, f.RatedSince, f.Counting, f.Taken = uint32(ev.Received)+1, now, true, 0
		if *counter == 0 { // it has wrapped: a byte too much is counted
			*counter--
		}
	}
}
