package idlenet

import "github.com/idlewheel/idlewheel/reap"

// Package reap has the fields, units and zero values of the types that this package shares with
// package idle. It has the reasons as well: errors.Is(ln.Reason(conn), reap.ReadIdle).
type (
	// Reason is why a connection ends:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.Reason
	Reason = reap.Reason
	// ReapError is why a connection ends:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.Error
	ReapError = reap.Error
	// ConfigError is one mistake in a Config:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.ConfigError
	ConfigError = reap.ConfigError
	// Event says that a connection is idle:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.Event
	Event = reap.Event
	// MinRate is a limit of Config and ConnLimits:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.MinRate
	MinRate = reap.MinRate
	// ConnLimits are the limits of one connection, see [Conn.SetLimits]:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.ConnLimits
	ConnLimits = reap.ConnLimits
	// ConnID names a connection for [Reaper.Kick]:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.ConnID
	ConnID = reap.ConnID
	// ConnInfo is what is known of a connection:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.ConnInfo
	ConnInfo = reap.ConnInfo
	// Query is what [Reaper.Inspect] is to find out:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.Query
	Query = reap.Query
	// Inspection is what [Reaper.Inspect] has found out:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.Inspection
	Inspection = reap.Inspection
	// Closed is the record of a connection that has ended:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.Closed
	Closed = reap.Closed
	// Ring is a picture of a timing wheel:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.Ring
	Ring = reap.Ring
	// Counts has a number for each Reason:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.Counts
	Counts = reap.Counts
	// LatenessStats are the times between deadlines and closes:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.LatenessStats
	LatenessStats = reap.LatenessStats
	// Stats holds the counters of a Reaper since its start:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.Stats
	Stats = reap.Stats
)

// Errors of methods, to be compared by errors.Is.
var (
	// ErrNotWatched is the error for a connection that the Reaper does not watch: it is closed,
	// or was neither accepted nor passed to [Reaper.Admit].
	ErrNotWatched = reap.ErrNotWatched
	// ErrBadConnID is the error of Kick for a text that is not a ConnID.
	ErrBadConnID = reap.ErrBadConnID
)
