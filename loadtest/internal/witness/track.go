package witness

import (
	"net/netip"
	"time"
)

// States of a TCP socket, as in the kernel.
const (
	established = 1
	finWait1    = 4
	finWait2    = 5
	timeWait    = 6
	closeWait   = 8
	lastAck     = 9
	listen      = 10
	closing     = 11

	// watched has a bit for each state of a connection after its handshake.
	watched = 1<<established | 1<<finWait1 | 1<<finWait2 | 1<<timeWait | 1<<closeWait | 1<<lastAck | 1<<closing
)

// A socket is the server's end of a connection at a moment. In TIME_WAIT, and in FIN_WAIT2 without
// a process, the kernel keeps the state and the addresses only.
type socket struct {
	cookie        uint64 // unique until the next boot
	local, remote netip.AddrPort
	state         uint8
	inode         uint32
	unread        uint32 // bytes; a FIN counts as one
	at            time.Time
	lastByte      time.Time // when the peer's last byte arrived, or the connection was accepted
	finAcked      bool      // the peer's kernel has acknowledged the server's FIN

	// Segments with data, and others: bare acknowledgments, FIN and RST.
	dataIn, otherIn, dataOut, otherOut uint32
}

// A conn is a connection under watch.
type conn struct {
	last    socket // its last sample with details
	round   int    // of the last sample in which the kernel listed it
	missing int    // samples since
	ended   bool   // its end is recorded
	sent    bool   // the peer has sent something
	gaps    int    // observed silences that ended with a byte
	longest time.Duration
}

// A Side is an end of a connection.
type Side string

const (
	Server  Side = "server"
	Peer    Side = "peer"
	Unknown Side = "unknown"
)

// A Close is the end of a connection.
type Close struct {
	Remote  netip.AddrPort `json:"remote"`
	At      time.Time      `json:"at"`
	By      Side           `json:"by"`
	Verdict Verdict        `json:"verdict,omitempty"`
	Silent  time.Duration  `json:"silent_ns"` // since the peer's last byte, or since the connection was accepted
	Within  time.Duration  `json:"within_ns"` // the largest error of Silent
	Unread  uint32         `json:"unread_bytes"`
	Sent    bool           `json:"sent"` // the peer has sent something
	// Gaps is the number of silences that the peer ended itself under watch, Longest is the longest.
	Gaps    int           `json:"gaps"`
	Longest time.Duration `json:"longest_gap_ns"`
}

// A tracker follows the connections of a server from sample to sample. Not safe for concurrent use.
type tracker struct {
	conns      map[uint64]*conn  // by cookie
	freed      map[uint64]socket // events of connections that the last sample still listed
	lost       bool              // the kernel has dropped events
	rounds     int
	last       time.Time // of the last sample
	listened   int       // ports with a listener in the first sample
	listenedAt time.Time // start of the last sample with all of them
	settled    int       // closes before it
	seen       int       // connections
	short      int       // connections that no sample listed while they were open
	closes     []Close
	dropped    int // closes beyond maxCloses
	peerCloses int
}

// maxCloses bounds the memory of a long watch: 100 MB.
const maxCloses = 1e6

func newTracker() *tracker {
	return &tracker{conns: map[uint64]*conn{}, freed: map[uint64]socket{}}
}

// sample takes the sockets that the kernel lists, and then those that it has freed since the last
// sample. listening is the number of ports with a listener.
func (t *tracker) sample(at time.Time, sockets []socket, listening int, freed []socket) {
	if t.rounds++; t.rounds == 1 {
		t.listened = listening
	}
	if listening >= t.listened {
		t.listenedAt, t.settled = at, len(t.closes)
	}
	for _, s := range freed {
		t.freed[s.cookie] = s
	}
	for _, s := range sockets {
		t.list(s, at)
	}
	for _, s := range freed {
		if t.conns[s.cookie] == nil {
			delete(t.freed, s.cookie)
			if t.rounds > 1 && s.remote.Port() != 0 { // without a peer it was a listener
				t.short++
			}
		}
	}
	for cookie, c := range t.conns {
		if c.round < t.rounds && (c.ended || t.vanished(c, at)) {
			delete(t.conns, cookie)
			delete(t.freed, cookie)
		}
	}
	if listening < t.listened {
		for i := range t.closes[t.settled:] {
			if c := &t.closes[t.settled+i]; c.At.After(t.listenedAt) {
				c.Verdict = Shutdown
			}
		}
	}
	t.last = at
}

// list takes a socket that the kernel lists.
func (t *tracker) list(s socket, at time.Time) {
	c := t.conns[s.cookie]
	open := s.state == established || s.state == closeWait
	if c == nil {
		c = &conn{ended: !open, last: s, sent: s.dataIn > 0 && s.state == established}
		t.conns[s.cookie] = c
		if open {
			t.seen++
		}
	}
	c.round, c.missing = t.rounds, 0
	switch {
	case c.ended:
	case open:
		c.update(s)
	case s.state == lastAck || c.last.state == closeWait:
		t.end(c, at, Peer)
	default:
		if !s.lastByte.IsZero() {
			c.update(s)
		}
		c.last.unread = 0 // with unread bytes the kernel sends an RST instead of a FIN
		t.end(c, at, Server)
	}
}

// resolution is the precision of lastByte: two ticks of a kernel with 100 ticks per second.
const resolution = 20 * time.Millisecond

// update notes the silence that ended since the last sample. If several messages arrived since
// then, it is longer than any of theirs, by at most the time between samples.
func (c *conn) update(s socket) {
	if s.state == established { // a FIN counts as a byte
		gap := s.lastByte.Sub(c.last.lastByte)
		if c.sent && gap > resolution { // the time until the first byte is no gap
			c.gaps++
			c.longest = max(c.longest, gap)
		}
		c.sent = s.dataIn > 0
	}
	c.last = s
}

// vanished records the end of a connection that the kernel does not list. It returns false if the
// next sample must decide: a dump may miss a socket while others come and go.
func (t *tracker) vanished(c *conn, at time.Time) bool {
	freed, known := t.freed[c.last.cookie]
	c.missing++
	switch {
	case c.last.state == closeWait:
		t.end(c, at, Peer)
	case known:
		t.end(c, at, closedBy(c.last, freed))
	case c.missing < 2:
		return false
	case t.lost:
		t.end(c, at, Unknown)
	default: // the process still has the socket: a reset arrived, or the kernel gave up
		t.end(c, at, Peer)
	}
	return true
}

// closedBy returns which side closed a connection that left no TIME_WAIT. That is a connection that
// the peer closed first, or one that was reset. The segments since the last sample tell which.
func closedBy(last, freed socket) Side {
	in, out := freed.otherIn-last.otherIn, freed.otherOut-last.otherOut
	data := freed.dataIn != last.dataIn || freed.dataOut != last.dataOut
	switch {
	case freed.remote.Port() == 0: // close with SO_LINGER of zero, which clears the socket
		return Server
	case in == 0: // neither a FIN nor an RST arrived
		return Server
	case !data && in == 1 && out >= 1: // the server's FIN, and its acknowledgment or an RST
		return Server
	case freed.finAcked || freed.dataOut == last.dataOut:
		return Peer
	case freed.unread > 0: // the kernel resets a connection that is closed with unread bytes
		return Server
	}
	return Unknown
}

// end records the end of a connection.
func (t *tracker) end(c *conn, at time.Time, by Side) {
	c.ended = true
	if by == Peer {
		t.peerCloses++
		return
	}
	if len(t.closes) >= maxCloses {
		t.dropped++
		return
	}
	// Without an event it was closed at any time since the last sample that listed it as open.
	from := c.last.at
	if from.After(t.last) { // this sample listed it with details
		from = t.last
	}
	within := at.Sub(from) / 2
	record := Close{
		Remote: c.last.remote, At: at.Add(-within), By: by, Unread: c.last.unread, Within: within, Gaps: c.gaps, Longest: c.longest, Sent: c.sent,
	}
	lastByte := c.last.lastByte
	if freed, known := t.freed[c.last.cookie]; known {
		record.At, record.Within = freed.at, resolution
		if freed.remote.Port() != 0 {
			lastByte, record.Unread, record.Sent = freed.lastByte, freed.unread, freed.dataIn > 0
		}
		if freed.finAcked { // the bytes were read; the FIN of the peer may count as one
			record.Unread = 0
		}
	}
	record.Silent = max(0, record.At.Sub(lastByte))
	t.closes = append(t.closes, record)
}

// open returns the number of connections that the last sample listed as open.
func (t *tracker) open() (n int) {
	for _, c := range t.conns {
		if !c.ended && c.missing == 0 {
			n++
		}
	}
	return n
}
