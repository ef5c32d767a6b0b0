package witness

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/silence"
)

// A socket is the server's end of a connection at a moment. In TIME_WAIT, and in FIN_WAIT2 without
// a process, the kernel keeps the state and the addresses only.
type socket struct {
	cookie        uint64 // unique until the next boot
	local, remote netip.AddrPort
	state         uint8  // as in unix.BPF_TCP_ESTABLISHED
	unread        uint32 // bytes; a FIN counts as one
	at            time.Time
	lastByte      time.Time // the arrival of the peer's last byte, or of the connection
	finAcked      bool      // the peer's kernel has acknowledged the server's FIN

	// Segments with data, and others: bare acknowledgments, FIN and RST.
	dataIn, otherIn, dataOut, otherOut uint32

	bytesIn uint64 // without those that came after the server had closed
}

// open reports whether the server has not closed its end.
func (s *socket) open() bool {
	return s.state == unix.BPF_TCP_ESTABLISHED || s.state == unix.BPF_TCP_CLOSE_WAIT
}

// A conn is a connection under watch.
type conn struct {
	last    socket    // its last sample with details
	freed   *socket   // the event of its end, if it came
	round   int       // of the last sample in which the kernel listed it
	gone    time.Time // since when the kernel does not list it as open
	ended   bool      // its end is recorded
	gaps    int
	longest time.Duration
}

// A tracker follows the connections of a server from sample to sample, and fills in the Report. Not
// safe for concurrent use.
type tracker struct {
	Report
	conns  map[uint64]*conn // by cookie
	lost   bool             // the kernel has dropped events
	rounds int
	last   time.Time // the start of the last sample

	// doors are the addresses at which the server was seen to listen, by port. Another program may
	// have connections of the same port at other addresses, also as their client.
	doors      map[uint16][]netip.Addr
	listened   int       // ports with a listener in the first sample
	listenedAt time.Time // start of the last sample with all of them

	short   int                     // connections that no sample listed while they were open
	gaps    [silence.Buckets]uint32 // connections by their longest gap, counted at their end
	dropped int                     // closes beyond maxCloses
}

// eventWait is how long the event of a closed socket is waited for. A worker of the kernel sends
// it: beside four busy loops after more than 0.2 s.
const eventWait = time.Second

// maxCloses bounds the memory of a long watch: 100 MB.
const maxCloses = 1e6

func newTracker(r Report) *tracker {
	r.Schema, r.Verdicts, r.Closed, r.Open = 1, map[Verdict]int{ByPeer: 0}, []Connection{}, []Connection{}
	return &tracker{Report: r, conns: map[uint64]*conn{}, doors: map[uint16][]netip.Addr{}}
}

// isForeign reports whether a connection came by none of the doors. A listener that has ended may
// have accepted it if none is known for its port. A socket that was reset may have no addresses.
func (t *tracker) isForeign(s socket) bool {
	known := t.doors[s.local.Port()]
	return len(known) > 0 && s.remote.Port() != 0 && !slices.ContainsFunc(known, func(a netip.Addr) bool {
		return a.IsUnspecified() || a == s.local.Addr()
	})
}

// sample takes the sockets that the kernel listed between two moments, and then those that it has
// freed since the last sample. listening is the number of ports with a listener.
func (t *tracker) sample(began, ended time.Time, listed []socket, listening int, freed []socket) {
	if t.rounds++; t.rounds == 1 {
		t.listened, t.last = listening, began
	}
	t.LongestWait = max(t.LongestWait, began.Sub(t.last))
	t.last = began
	for _, s := range listed {
		if t.conns[s.cookie] == nil {
			t.conns[s.cookie] = &conn{last: s, ended: !s.open()}
			if s.open() {
				t.Seen++
			}
		}
	}
	for _, s := range freed {
		if c := t.conns[s.cookie]; c != nil {
			c.freed = &s
		} else if t.rounds > 1 && s.remote.Port() != 0 { // without a peer it was a listener
			t.short++
		}
	}
	for _, s := range listed {
		c := t.conns[s.cookie]
		c.round = t.rounds
		if s.open() {
			c.update(s)
		} else {
			t.close(c, s)
		}
	}
	maps.DeleteFunc(t.conns, func(_ uint64, c *conn) bool {
		return c.round < t.rounds && t.close(c, socket{at: ended})
	})
	if listening >= t.listened {
		t.listenedAt = began
		return
	}
	for i := range t.Closed {
		if t.Closed[i].Closed.After(t.listenedAt) {
			t.Closed[i].Verdict = Shutdown
		}
	}
}

// resolution is the precision of lastByte: two ticks of a kernel with 100 ticks per second.
const resolution = 20 * time.Millisecond

// update notes the silence that ended since the last sample. If several messages arrived since
// then, it is longer than any of theirs, by at most the time between samples. The time until the
// first byte is no gap.
func (c *conn) update(s socket) {
	if gap := s.lastByte.Sub(c.last.lastByte); c.last.dataIn > 0 && gap > resolution {
		c.gaps++
		c.longest = max(c.longest, gap)
	}
	c.last, c.gone = s, time.Time{}
}

// close records the end of a connection that the kernel lists as closed, or no longer lists: then s
// has the moment only. It returns false if a later sample or event may tell more.
func (t *tracker) close(c *conn, s socket) bool {
	listed, missed := s.state != 0, c.gone.IsZero()
	if missed || listed && c.last.open() {
		c.gone = s.at
	}
	mayCome := t.mayCome(c, s.at)
	switch {
	case c.ended:
	case s.state == unix.BPF_TCP_LAST_ACK || c.last.state == unix.BPF_TCP_CLOSE_WAIT:
		t.end(c, ByPeer)
	case listed:
		c.last.state = s.state
		c.last.unread = 0 // with unread bytes the kernel sends an RST instead of a FIN
		if !s.lastByte.IsZero() {
			c.last.lastByte, c.last.dataIn = s.lastByte, s.dataIn
		} else if mayCome {
			return false
		}
		t.end(c, byServer)
	case c.freed != nil:
		t.end(c, closedBy(c.last, *c.freed))
	case missed, mayCome: // a dump may miss a socket while others come and go
	case !c.last.open(): // it was listed as closed
		t.end(c, byServer)
	case t.lost:
		t.end(c, Unknown)
	default: // the process still has the socket: a reset arrived, or the kernel gave up
		t.end(c, ByPeer)
	}
	return c.ended
}

// mayCome reports whether the event of a connection may still come.
func (t *tracker) mayCome(c *conn, now time.Time) bool {
	return c.freed == nil && !t.lost && now.Sub(c.gone) < eventWait
}

// closedBy returns byServer, ByPeer or Unknown for a connection without TIME_WAIT. Either the peer
// closed first, or the connection was reset. The segments since the last sample tell which.
func closedBy(last, freed socket) Verdict {
	in, out := freed.otherIn-last.otherIn, freed.otherOut-last.otherOut
	data := freed.dataIn != last.dataIn || freed.dataOut != last.dataOut
	switch {
	case freed.remote.Port() == 0, // a close with SO_LINGER of zero clears the socket
		in == 0,                      // neither a FIN nor an RST arrived
		!data && in == 1 && out >= 1, // the server's FIN, and its acknowledgment or an RST
		freed.finAcked && in == 1 && freed.bytesIn == last.bytesIn: // bytes came, and were refused
		return byServer
	case freed.finAcked || freed.dataOut == last.dataOut:
		return ByPeer
	case freed.unread > 0: // the kernel resets a connection that is closed with unread bytes
		return byServer
	}
	return Unknown
}

// end records the end of a connection. by is byServer, ByPeer or Unknown.
func (t *tracker) end(c *conn, by Verdict) {
	c.ended = true
	t.gaps[silence.Bucket(c.longest)]++
	switch {
	case by == ByPeer:
		t.Verdicts[ByPeer]++
		return
	case len(t.Closed) >= maxCloses:
		t.dropped++
		return
	}
	// Without an event it was closed at any time since the last sample that listed it as open. On a
	// busy machine the event is late, and tells the time of its own.
	end, from := c.last, c.last.at
	if c.freed != nil && c.freed.remote.Port() != 0 {
		if end = *c.freed; end.lastByte.After(from) {
			from = end.lastByte
		}
	}
	// A FIN is sent only if all was read. That of the peer is a byte.
	if c.freed != nil && c.freed.finAcked {
		end.unread = 0
	}
	within := max(c.gone.Sub(from)/2, 0)
	if end.at = c.gone.Add(-within); c.freed != nil && !c.freed.at.After(c.gone) {
		end.at, within = c.freed.at, resolution
	}
	record := c.record(end)
	record.Verdict, record.Closed, record.Within = by, end.at, within
	t.Closed = append(t.Closed, record)
}

// record returns the connection as its socket was at a moment.
func (c *conn) record(s socket) Connection {
	return Connection{
		Remote: c.last.remote, Silent: max(0, s.at.Sub(s.lastByte)), Unread: s.unread, Sent: s.dataIn > 0,
		Gaps: c.gaps, Longest: c.longest,
	}
}

// open reports whether the last sample listed the connection as open.
func (c *conn) open() bool { return !c.ended && c.gone.IsZero() }

// count returns the number of connections that the last sample listed as open, and of those with an
// end that is not decided yet.
func (t *tracker) count() (open, undecided int) {
	for _, c := range t.conns {
		switch {
		case c.open():
			open++
		case !c.ended:
			undecided++
		}
	}
	return open, undecided
}
