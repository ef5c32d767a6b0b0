package reap

import (
	"net"
	"time"
)

// A Query says what Inspect is to find out. The zero Query asks for nothing.
type Query struct {
	// Limit is how many connections are listed, the first ones in the order of By.
	Limit int
	// By is the order of the list: "idle" for the connections that were heard longest ago, "age"
	// for those that were opened longest ago, "output" for those with most output waiting. If
	// empty, it is "idle".
	By string
	// States makes Inspect count all connections by their states.
	States bool
	// Sectors is the greatest number of sectors of a [Ring]. If zero, there are no rings.
	Sectors int
	// Closed lists the connections that were reaped last, at most as many as Config.KeepClosed.
	Closed bool
	// Silences collects the silences of peers. A loop without connections at present has none.
	Silences bool
}

// An Inspection is what Inspect has found out.
type Inspection struct {
	Connections []ConnInfo     // of Query.Limit
	States      map[string]int // of Query.States: all states at the last checks, zeros after an error
	// Overdue is how many connections should have been judged by now and were not yet. It is
	// counted with Query.States.
	Overdue int
	Rings   []Ring   // of Query.Sectors, one for each event loop that has had connections
	Closed  []Closed // of Query.Closed, the last one first

	Silences Silences // of Query.Silences
}

// ConnInfo is what a Reaper knows of a connection.
type ConnInfo struct {
	ID        ConnID
	Remote    net.Addr // the address of the socket, or of Conn.SetRemote
	Age       time.Duration
	ReadIdle  time.Duration // since the peer was heard, to within a tick
	WriteIdle time.Duration // since bytes were sent
	Received  uint64        // bytes that came in; Linux and TCP only
	Sent      uint64        // bytes that the peer has acknowledged; Linux and TCP only
	Output    int           // bytes that wait for the peer, in gnet and, if known, in the kernel
	// Unwritable is true after Config.OutputMarks.OnWritable got false, until it gets true.
	Unwritable bool
	// State is "exempt" after Conn.Exempt, "observed" if ObserveOnly has spared the connection,
	// "leaving" after MaxAge, "held" after Conn.Hold, "stalled" while output waits (with limits of
	// output only), "handshake" until Conn.Ready (with HandshakeTimeout only), and "open"
	// otherwise. If several apply, it is the first of them.
	State  string
	Due    time.Duration // until the next check
	Missed int           // pings without an answer
}

// ConnID names a connection of a Reaper, for Kick. It is a text such as 1-23-456, the same for the
// life of the connection. The last number is a hash with a random key, so that the ID of a closed
// connection, of this process or one before it, is that of no other one, but for one chance in
// 2^32.
type ConnID string

// Closed is the record of a reaped connection.
type Closed struct {
	ID     ConnID // of ConnInfo while it was open
	At     time.Time
	Age    time.Duration
	Remote net.Addr
	Err    *Error
}

// A Ring is a picture of the timing wheel of an event loop: the number of connections in each part
// of a turn. A turn is as long as the longest idle timeout. A connection that was heard keeps its
// place until its slot comes up, and moves then.
type Ring struct {
	Loop        int // number of the event loop, or of the part of the connections, from 1
	Connections int
	Turn        time.Duration
	Now         time.Duration // the hand stands at Now modulo Turn
	Sectors     []int         // connections that come up in each part of a turn
	Later       int           // connections that come up after more than a turn
	Reaped      Counts
}
