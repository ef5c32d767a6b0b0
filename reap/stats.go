package reap

import (
	"net/netip"
	"time"
)

// Stats holds the counters since the start. Package idlenet has no event loops, sees no reads and
// keeps no output: the fields for these are 0.
type Stats struct {
	Connections     int           // watched now
	Opened          uint64        // connections watched so far
	Closed          uint64        // of them, closed for any reason
	ClosedByPeer    uint64        // of Closed, ended by the peer (FIN)
	ClosedByHandler uint64        // of Closed, closed by the handler or by the end of the engine
	Failed          uint64        // of Closed, ended with an error, such as a reset
	Reaped          Counts        // of Closed, closed by the Reaper
	Observed        Counts        // connections that only Config.ObserveOnly kept open
	Refused         uint64        // connections closed on arrival, unseen by the handler
	RefusedBySource uint64        // of Refused, above Config.Sources; idlenet only
	RefusedByRate   uint64        // of Refused, above Config.AcceptRate; idlenet only
	Reads           uint64        // calls of OnTraffic with new bytes from the peer; gnet only
	Events          Counts        // idle events
	Pings           uint64        // heartbeats sent
	Missed          uint64        // of Pings, not answered in time
	Rescheduled     uint64        // checks that found the connection alive
	SparedUnread    uint64        // connections that seemed dead, but the kernel had newer bytes
	Lateness        LatenessStats // of Reaped
	Entries         int           // entries in the wheels
	Updates         uint64        // calls of Update that changed the Config
	Draining        bool          // Drain was called
	PendingOutput   int           // bytes in gnet's buffers, as last seen; 0 without OutputLimit.Total
	Unwritable      int           // of Connections, not writable by OutputMarks; gnet only

	// Postponed counts the verdicts that an outage has postponed: a deadline had passed, but the
	// server could not have heard the peer. A connection may count several times.
	Postponed uint64
	// Outages counts the times in which the server could not hear its peers: its process was
	// stopped, its machine was paused, or its network was down.
	Outages    uint64
	OutageTime time.Duration // the sum of their lengths
	// Suspensions counts how often verdicts were suspended because all connections that had been
	// busy together fell silent, and GroupSuspensions the same for each [Group]: a part of the
	// network may be several. Suspended is true while verdicts about all connections are suspended.
	// SuspendedFor are the silences of all connections and of groups for which they are, the
	// longest first.
	Suspensions, GroupSuspensions uint64
	Suspended                     bool
	SuspendedFor                  []Suspension

	// LoopDelay is the delay of the event loop that is latest with its checks. It is 0 if one task
	// is enough for all that is due.
	LoopDelay time.Duration
	// ClockDelay is the greatest delay of the clock in the last ten to twenty seconds. If it is
	// large, the process was stopped or short of CPU.
	ClockDelay time.Duration
}

// A Suspension is a silence of connections that had been busy together, for which verdicts about
// their peers are suspended.
type Suspension struct {
	Group Group         // the zero Group is that of all connections
	For   time.Duration // since the last byte. No dead connection is kept for longer
}

// A Group names connections that share a part of the way to their peers. One of its fields is set.
type Group struct {
	Local  netip.Addr   // the address of this side of their sockets
	Remote netip.Prefix // the network of the other side
	Name   string       // the name that SetGroup has given them
}

// String returns the field that is set, such as "remote 192.0.2.0/24", or "all".
func (g Group) String() string {
	switch {
	case g.Name != "":
		return "group " + g.Name
	case g.Remote.IsValid():
		return "remote " + g.Remote.String()
	case g.Local.IsValid():
		return "local " + g.Local.String()
	}
	return "all"
}

// Counts has an entry for each [Reason], also if its number is 0.
type Counts map[Reason]uint64

// Total returns the sum over all reasons.
func (c Counts) Total() (n uint64) {
	for _, of := range c {
		n += of
	}
	return n
}

// LatenessStats is a histogram of the times from the deadlines of connections until their reaping.
type LatenessStats struct {
	Count    uint64
	Sum, Max time.Duration
	// Buckets has the number of connections up to each of Bounds and above the bound before it. The
	// last bucket counts the connections above the last bound.
	Buckets []uint64
	Bounds  []time.Duration
}
