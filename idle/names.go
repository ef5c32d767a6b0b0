package idle

import "github.com/idlewheel/idlewheel/reap"

// Package reap has the fields, units and zero values of the types that this package shares with
// package idlenet. It has the reasons as well: errors.Is(err, reap.ReadIdle).
type (
	// Reason is why a connection ends:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.Reason
	Reason = reap.Reason
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
	// Closed is the record of a reaped connection:
	//
	//	go doc github.com/idlewheel/idlewheel/reap.Closed
	Closed = reap.Closed
	// Ring is a picture of the timing wheel of an event loop:
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
