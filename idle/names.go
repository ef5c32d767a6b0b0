package idle

import "github.com/idlewheel/idlewheel/reap"

// The types that this package shares with package idlenet, by the name of each. Package reap has
// their fields, units and zero values:
//
//	go doc github.com/idlewheel/idlewheel/reap.Event
//
// It has the reasons as well: errors.Is(err, reap.ReadIdle).
type (
	Reason        = reap.Reason
	ConfigError   = reap.ConfigError // one mistake in a Config
	Event         = reap.Event       // a connection is idle
	MinRate       = reap.MinRate     // of Config and ConnLimits
	ConnLimits    = reap.ConnLimits  // of one connection, see [Conn.SetLimits]
	ConnID        = reap.ConnID      // names a connection for [Reaper.Kick]
	ConnInfo      = reap.ConnInfo    // what is known of a connection
	Query         = reap.Query       // what [Reaper.Inspect] is to find out
	Inspection    = reap.Inspection  // what it has found out
	Closed        = reap.Closed      // the record of a reaped connection
	Ring          = reap.Ring        // a picture of the timing wheel of an event loop
	Counts        = reap.Counts
	LatenessStats = reap.LatenessStats
)

// ReapError is the error that OnClose gets for a connection that the Reaper has closed. With
// errors.Is it matches its Reason, and os.ErrDeadlineExceeded if Timeout is true. For all other
// connections OnClose gets the error of gnet: nil if the handler has closed the connection or the
// engine stops, io.EOF within an *os.SyscallError if the peer has, or why a read or a write failed.
// For the fields: go doc github.com/idlewheel/idlewheel/reap.Error
type ReapError = reap.Error

// Stats holds the counters of a Reaper since its start. Opened, Closed and Reaped are exact. Reads
// of the current tick appear with the next message, open, close or task of their event loop, which
// is at most one timeout later. For the fields: go doc github.com/idlewheel/idlewheel/reap.Stats
type Stats = reap.Stats

// Errors of methods, to be compared by errors.Is.
var (
	// ErrNotWatched is the error for a connection that the Reaper does not watch: it is closed, it
	// is a datagram socket, or it was not opened through this Reaper.
	ErrNotWatched = reap.ErrNotWatched
	// ErrBadConnID is the error of Kick for a text that is not a ConnID.
	ErrBadConnID = reap.ErrBadConnID
)
