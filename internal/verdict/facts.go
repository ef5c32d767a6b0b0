package verdict

import (
	"cmp"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/reap"
)

// A Span bounds an instant: it lies after From and not after To. Stamps of the coarse clock and
// times of the kernel are no more exact.
type Span struct{ From, To mono.Time }

// At returns the span of an instant that is known exactly.
func At(instant mono.Time) Span { return Span{instant, instant} }

// Or returns the bounds of the later of two instants.
func (s Span) Or(o Span) Span { return Span{max(s.From, o.From), max(s.To, o.To)} }

// Facts are the known state of one connection.
type Facts struct {
	Opened  Span
	Heard   Span                   // the last byte of the peer
	Wrote   Span                   // the last new byte sent; Opened if there was none
	Noticed [IdleReasons]mono.Time // the last idle events, rounded up to the tick

	// HeardAt and WroteAt are Heard and Wrote as the kernel reports them, to within one step of its
	// clock; 0 if it does not. They are for reports: a verdict that relied on them could be early
	// by that step.
	HeardAt, WroteAt mono.Time

	// ArrivedAfter is an instant after which the last byte of the peer reached the kernel, 0 if it
	// is unknown. Heard may be later, if the byte waited or its handler was slow.
	ArrivedAfter mono.Time

	Fresh   bool // nothing was heard yet
	Ready   bool // the handshake is complete
	Held    bool // a request is being worked on
	NoPings bool // the protocol has no room for a ping
	Unread  bool // bytes of the peer wait in the socket
	Blind   bool // the kernel does not report when bytes were sent

	Output       int       // bytes that wait in the buffer of the event loop
	StalledSince mono.Time // output has waited since then, and the peer has read none of it
	OverSince    mono.Time // output has been above the soft limit since then
	Large        Large     // output above the hard limit that the peer gets time for

	RatedSince mono.Time // the beginning of the window of Rate
	Counting   bool      // the window has begun
	Taken      int       // bytes received in it

	LastPing mono.Time // the last ping or pong; if Leaving, the instant of the goodbye
	Missed   int       // pings since the last answer
	Leaving  bool      // the maximum age is reached

	EndedSince mono.Time // the peer had ended its side by then

	Random float64 // in [0, 1), constant for the life of the connection
}

// A Large is output above the hard limit that has come at once, as one answer does. The peer cannot
// have taken it yet, so it gets LargeFor for each part that is as large as the limit, or LargePart.
type Large struct {
	Since   mono.Time // the peer has taken less than such a part since then; 0 if none is large
	Taken   uint64    // counts the bytes that it had taken then
	Least   int       // the least output in the buffer of the event loop at a check since it came
	Written uint64    // counts the bytes written until the last check; 0 if none waited
}

// OutputWaits reports whether output waits for the peer.
func (f *Facts) OutputWaits() bool {
	return f.Output > 0 || f.StalledSince != 0 || f.OverSince != 0
}

// active returns the last activity that counts against an idle reason.
func (f *Facts) active(r Reason) mono.Time {
	switch r {
	case reap.ReadIdle:
		return f.Heard.To
	case reap.WriteIdle:
		return f.Wrote.To
	default:
		return max(f.Heard.To, f.Wrote.To)
	}
}

// known returns the last activity for an idle reason, as exactly as it is known.
func (f *Facts) known(r Reason) mono.Time {
	exact := Facts{Heard: At(cmp.Or(f.HeardAt, f.Heard.To)), Wrote: At(cmp.Or(f.WroteAt, f.Wrote.To))}
	return exact.active(r)
}

// heardAfter returns an instant after which the last byte of the peer arrived. If the kernel does
// not date bytes, a byte read within two ticks of an outage may have waited during it.
func (f *Facts) heardAfter(tick time.Duration) mono.Time {
	return cmp.Or(f.ArrivedAfter, f.Heard.From.Add(-2*tick))
}
