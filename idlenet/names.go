package idlenet

import "github.com/idlewheel/idlewheel/reap"

// A Reason says why a connection ends. It is an error, so that it can be compared:
//
//	if errors.Is(ln.Reason(conn), idlenet.ReadIdle) {
//
// See [reap.Reason].
type Reason = reap.Reason

// The reasons. If several limits have passed, the reason is the limit that passed first.
const (
	ReadIdle         = reap.ReadIdle         // nothing was received for Config.ReadTimeout
	WriteIdle        = reap.WriteIdle        // nothing was sent for Config.WriteTimeout
	AllIdle          = reap.AllIdle          // nothing was sent either way for Config.AllTimeout
	NoFirstByte      = reap.NoFirstByte      // no byte came within Config.FirstByteTimeout
	NoHandshake      = reap.NoHandshake      // Ready was not called within Config.HandshakeTimeout
	WriteStall       = reap.WriteStall       // the peer took no output for Config.WriteStallTimeout
	BelowMinRate     = reap.BelowMinRate     // a message arrived more slowly than Config.MinRate
	HeartbeatTimeout = reap.HeartbeatTimeout // the peer did not answer the pings of Config.Heartbeat
	MaxAge           = reap.MaxAge           // the connection reached Config.MaxAge
	Drained          = reap.Drained          // Drain was called
	Kicked           = reap.Kicked           // Kick was called
	Shed             = reap.Shed             // ended to make room, see Config.MaxConnections
)

// ReapError says why a connection ends: [Config].OnReap gets it and [Listener.Reason] returns it.
// With errors.Is it matches its Reason, and os.ErrDeadlineExceeded if its Timeout is true.
type ReapError = reap.Error

// Event is the observation that a connection is idle.
type Event = reap.Event

// Stats holds the counters of a Listener since its start.
type Stats = reap.Stats
