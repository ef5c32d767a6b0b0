package idlenet

import "github.com/idlewheel/idlewheel/reap"

// The types that this package shares with package idle, by the name of each. Package reap has their
// fields, units and zero values:
//
//	go doc github.com/idlewheel/idlewheel/reap.Event
//
// It has the reasons as well: errors.Is(ln.Reason(conn), reap.ReadIdle).
type (
	Reason        = reap.Reason
	ReapError     = reap.Error       // why a connection ends
	ConfigError   = reap.ConfigError // one mistake in a Config
	Event         = reap.Event       // a connection is idle
	MinRate       = reap.MinRate     // of Config and ConnLimits
	ConnLimits    = reap.ConnLimits  // of one connection, see [Conn.SetLimits]
	ConnID        = reap.ConnID      // names a connection for [Reaper.Kick]
	ConnInfo      = reap.ConnInfo    // what is known of a connection
	Query         = reap.Query       // what [Reaper.Inspect] is to find out
	Inspection    = reap.Inspection  // what it has found out
	Closed        = reap.Closed      // the record of a connection that has ended
	Ring          = reap.Ring        // a picture of a timing wheel
	Stats         = reap.Stats
	Counts        = reap.Counts
	LatenessStats = reap.LatenessStats
)

// Errors of methods, to be compared by errors.Is.
var (
	// ErrNotWatched is the error for a connection that the Reaper does not watch: it is closed,
	// or was neither accepted nor passed to [Reaper.Admit].
	ErrNotWatched = reap.ErrNotWatched
	// ErrBadConnID is the error of Kick for a text that is not a ConnID.
	ErrBadConnID = reap.ErrBadConnID
)
