package witness

import (
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

// doors are the addresses at which the server was seen to listen, by port. Another program may have
// connections of the same port at other addresses, also as their client.
type doors map[uint16][]netip.Addr

// add adds an address.
func (d doors) add(at netip.AddrPort) {
	if port := at.Port(); !slices.Contains(d[port], at.Addr()) {
		d[port] = append(d[port], at.Addr())
	}
}

// have reports whether a connection may have come by one of them. A listener that has ended may
// have accepted it if none is known for its port. A socket that was reset may have no addresses.
func (d doors) have(s socket) bool {
	known := d[s.local.Port()]
	return len(known) == 0 || s.remote.Port() == 0 || slices.ContainsFunc(known, func(a netip.Addr) bool {
		return a.IsUnspecified() || a == s.local.Addr()
	})
}

// A conn is a connection under watch.
type conn struct {
	last    socket    // its last sample with details
	round   int       // of the last sample in which the kernel listed it
	missing time.Time // since when the kernel lists it no longer
	ended   bool      // its end is recorded
	closing time.Time // the server has closed it, and the event with the details may come
	gaps    int
	longest time.Duration
}

// A tracker follows the connections of a server from sample to sample, and fills in the Report. Not
// safe for concurrent use.
type tracker struct {
	Report
	conns  map[uint64]*conn  // by cookie
	freed  map[uint64]socket // events of connections that the last sample still listed
	lost   bool              // the kernel has dropped events
	rounds int
	last   time.Time // the start of the last sample

	doors      doors
	listened   int       // ports with a listener in the first sample
	listenedAt time.Time // start of the last sample with all of them
	settled    int       // closes before it

	short   int                     // connections that no sample listed while they were open
	gaps    [silence.Buckets]uint32 // connections that have ended, by their longest gap
	dropped int                     // closes beyond maxCloses
}

// eventWait is how long the event of a closed socket is waited for. A worker of the kernel sends
// it: beside four busy loops after more than 0.2 s.
const eventWait = time.Second

// maxCloses bounds the memory of a long watch: 100 MB.
const maxCloses = 1e6

func newTracker(r Report) *tracker {
	r.Schema, r.Verdicts, r.Closed, r.Open = 1, map[Verdict]int{ByPeer: 0}, []Connection{}, []Connection{}
	return &tracker{Report: r, conns: map[uint64]*conn{}, freed: map[uint64]socket{}, doors: doors{}}
}

// sample takes the sockets that the kernel listed between two moments, and then those that it has
// freed since the last sample. listening is the number of ports with a listener.
func (t *tracker) sample(began, ended time.Time, listed []socket, listening int, freed []socket) {
	if t.rounds++; t.rounds == 1 {
		t.listened, t.last = listening, began
	}
	t.LongestWait = max(t.LongestWait, began.Sub(t.last))
	if listening >= t.listened {
		t.listenedAt, t.settled = began, len(t.Closed)
	}
	for _, s := range freed {
		t.freed[s.cookie] = s
	}
	for _, s := range listed {
		t.observe(s)
	}
	t.countShort(freed)
	for cookie, c := range t.conns {
		if c.round < t.rounds && (c.ended || t.vanished(c, ended)) {
			delete(t.conns, cookie)
			delete(t.freed, cookie)
		}
	}
	if listening < t.listened {
		for i := t.settled; i < len(t.Closed); i++ {
			if t.Closed[i].Closed.After(t.listenedAt) {
				t.Closed[i].Verdict = Shutdown
			}
		}
	}
	t.last = began
}

// countShort removes the freed sockets that no sample listed, and counts them.
func (t *tracker) countShort(freed []socket) {
	for _, s := range freed {
		if t.conns[s.cookie] == nil {
			delete(t.freed, s.cookie)
			if t.rounds > 1 && s.remote.Port() != 0 { // without a peer it was a listener
				t.short++
			}
		}
	}
}

// observe takes a socket that the kernel lists.
func (t *tracker) observe(s socket) {
	c := t.conns[s.cookie]
	open := s.state == unix.BPF_TCP_ESTABLISHED || s.state == unix.BPF_TCP_CLOSE_WAIT
	if c == nil {
		c = &conn{ended: !open, last: s}
		t.conns[s.cookie] = c
		if open {
			t.Seen++
		}
	}
	c.round, c.missing = t.rounds, time.Time{}
	switch {
	case c.ended:
	case open:
		c.update(s)
	case s.state == unix.BPF_TCP_LAST_ACK || c.last.state == unix.BPF_TCP_CLOSE_WAIT:
		t.end(c, s.at, ByPeer)
	default:
		if c.closing.IsZero() {
			c.closing = s.at
		}
		if s.lastByte.IsZero() && t.freed[s.cookie] == (socket{}) && t.mayCome(c.closing, s.at) {
			return
		}
		c.last.unread = 0 // with unread bytes the kernel sends an RST instead of a FIN
		if !s.lastByte.IsZero() {
			c.last.lastByte, c.last.dataIn = s.lastByte, s.dataIn
		}
		t.end(c, c.closing, byServer)
	}
}

// mayCome reports whether the event of a socket may still come. since is when its end was noticed.
func (t *tracker) mayCome(since, now time.Time) bool { return !t.lost && now.Sub(since) < eventWait }

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
	c.last = s
}

// vanished records the end of a connection that the kernel does not list. It returns false if the
// next sample must decide: a dump may miss a socket while others come and go.
func (t *tracker) vanished(c *conn, at time.Time) bool {
	freed, known := t.freed[c.last.cookie]
	missed := c.missing.IsZero()
	if missed {
		c.missing = at
	}
	switch {
	case c.last.state == unix.BPF_TCP_CLOSE_WAIT:
		t.end(c, at, ByPeer)
	case known:
		t.end(c, c.missing, closedBy(c.last, freed))
	case missed || t.mayCome(c.missing, at):
		return false
	case !c.closing.IsZero():
		t.end(c, c.closing, byServer)
	case t.lost:
		t.end(c, c.missing, Unknown)
	default: // the process still has the socket: a reset arrived, or the kernel gave up
		t.end(c, c.missing, ByPeer)
	}
	return true
}

// closedBy returns byServer, ByPeer or Unknown for a connection without TIME_WAIT. Either the peer
// closed first, or the connection was reset. The segments since the last sample tell which.
func closedBy(last, freed socket) Verdict {
	in, out := freed.otherIn-last.otherIn, freed.otherOut-last.otherOut
	data := freed.dataIn != last.dataIn || freed.dataOut != last.dataOut
	switch {
	case freed.remote.Port() == 0, // a close with SO_LINGER of zero clears the socket
		in == 0: // neither a FIN nor an RST arrived
		return byServer
	case !data && in == 1 && out >= 1: // the server's FIN, and its acknowledgment or an RST
		return byServer
	case freed.finAcked && in == 1 && freed.bytesIn == last.bytesIn: // bytes came, and were refused
		return byServer
	case freed.finAcked || freed.dataOut == last.dataOut:
		return ByPeer
	case freed.unread > 0: // the kernel resets a connection that is closed with unread bytes
		return byServer
	}
	return Unknown
}

// end records the end of a connection that a sample noticed first at a moment. by is byServer,
// ByPeer or Unknown.
func (t *tracker) end(c *conn, at time.Time, by Verdict) {
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
	freed, known := t.freed[c.last.cookie]
	if known && freed.remote.Port() != 0 {
		if end = freed; freed.lastByte.After(from) {
			from = freed.lastByte
		}
	}
	if known && freed.finAcked { // a FIN is sent only if all was read; that of the peer is a byte
		end.unread = 0
	}
	within := max(at.Sub(from)/2, 0)
	if end.at = at.Add(-within); known && !freed.at.After(at) {
		end.at, within = freed.at, resolution
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
func (c *conn) open() bool { return !c.ended && c.closing.IsZero() && c.missing.IsZero() }

// waits reports whether the event of a socket may still come.
func (t *tracker) waits() bool {
	for _, c := range t.conns {
		if !c.ended && !c.open() {
			return true
		}
	}
	return false
}

// open returns the number of connections that the last sample listed as open.
func (t *tracker) open() (n int) {
	for _, c := range t.conns {
		if c.open() {
			n++
		}
	}
	return n
}
