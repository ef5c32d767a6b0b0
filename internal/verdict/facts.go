package verdict

import "time"

// A Span bounds an instant: it lies after From and not after To. The stamps of the coarse clock and
// the counters of the kernel tell no more.
type Span struct{ From, To time.Duration }

// At returns the span of an instant that is known exactly.
func At(instant time.Duration) Span { return Span{instant, instant} }

// Or returns the bounds of the later of two instants.
func (s Span) Or(o Span) Span { return Span{max(s.From, o.From), max(s.To, o.To)} }

// Facts are what is known of one connection.
type Facts struct {
	Opened  Span
	Heard   Span                       // the last byte of the peer
	Wrote   Span                       // the last new byte that was sent; Opened if there was none
	Noticed [IdleReasons]time.Duration // the last idle events, rounded up to the tick

	// HeardAt and WroteAt are what the kernel says of Heard and Wrote, to within one step of its
	// clock and within their bounds; 0 if it says nothing. They are for reports: a verdict that
	// relied on them could be early by that step.
	HeardAt, WroteAt time.Duration

	// ArrivedAfter is an instant after which the last byte of the peer reached the kernel, 0 if the
	// kernel does not say. Heard may be later: the byte has waited, or its handler took its time.
	ArrivedAfter time.Duration

	Fresh  bool // nothing was heard yet
	Ready  bool // the handshake is complete
	Held   bool // a request is being worked on
	Unread bool // bytes of the peer wait in the socket
	Blind  bool // it is not known when something was sent

	Output       int           // bytes that wait in the buffer of the event loop
	StalledSince time.Duration // output waits since then, and the peer has taken none of it
	OverSince    time.Duration // output is above the soft limit since then

	RatedSince time.Duration // the window of Rate begins, or began, then
	Counting   bool          // it began
	Taken      int           // bytes that came in it

	LastPing time.Duration // the last ping or pong; if Leaving, the instant of the goodbye
	Missed   int           // pings since the last answer
	Leaving  bool          // Age was reached

	Random float64 // in [0, 1), the same as long as the connection lives
}

// OutputWaits reports whether output waits for the peer.
func (f *Facts) OutputWaits() bool {
	return f.Output > 0 || f.StalledSince != 0 || f.OverSince != 0
}

// active returns when there was activity of the kind that ends an idleness.
func (f *Facts) active(r Reason) Span {
	switch r {
	case ReadIdle:
		return f.Heard
	case WriteIdle:
		return f.Wrote
	default:
		return f.Heard.Or(f.Wrote)
	}
}

// known returns when there was activity of a kind as exactly as it is known.
func (f *Facts) known(r Reason) time.Duration {
	exact := Facts{Heard: f.Heard, Wrote: f.Wrote}
	if f.HeardAt != 0 {
		exact.Heard = At(f.HeardAt)
	}
	if f.WroteAt != 0 {
		exact.Wrote = At(f.WroteAt)
	}
	return exact.active(r).To
}

// heardAfter returns an instant after which the last byte of the peer arrived. If the kernel does not
// date bytes, those that are read within two ticks of an outage may have waited during it.
func (f *Facts) heardAfter(tick time.Duration) time.Duration {
	if f.ArrivedAfter != 0 {
		return f.ArrivedAfter
	}
	return f.Heard.From - 2*tick
}
