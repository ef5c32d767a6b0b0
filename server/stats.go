package server

// Stats are figures of a Server. Counts begin when New is called. The Reaper has Stats of its own.
type Stats struct {
	// Connections is the number of open connections.
	Connections int
	// MaxConnections is the limit of open connections, 0 if there is none. It is lower while
	// descriptors are short.
	MaxConnections int
	// MaxDescriptors is the limit of descriptors of the process, 0 if it is not known.
	MaxDescriptors int
	// Paused reports whether MaxConnections are open, so that new clients wait, or are refused if
	// Update has lowered the limit. Pauses is how often clients began to wait.
	Paused bool
	Pauses uint64
	// Draining reports whether connections are being closed: the server stops and Drain.Delay is
	// over, or Drain of the Reaper was called.
	Draining bool
	// Rejected counts the connections that were closed before the handler saw them.
	Rejected Rejected
	// Reloads is the number of reloads that were applied, and FailedReloads of those that were not,
	// see [Server.Reloaded].
	Reloads, FailedReloads uint64
	// DroppedLogs is the number of log records that were not written, because the reader of the log
	// was too slow or gone.
	DroppedLogs uint64
	// Pressure is the use of each resource now.
	Pressure Pressure
}

// Rejected counts rejected connections by reason.
type Rejected struct {
	Source         uint64 // a limit of its source, see SourceLimits
	AcceptRate     uint64 // Config.AcceptRate
	MaxConnections uint64 // above a limit that Update has lowered, or the server was draining
}

// Total returns the sum over all reasons.
func (r Rejected) Total() uint64 { return r.Source + r.AcceptRate + r.MaxConnections }
