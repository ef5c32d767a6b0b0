package idle

import (
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// A Reason says why the Reaper closes a connection. It is an error, so that OnClose can compare:
//
//	if errors.Is(err, idle.ReadIdle) {
//
// The zero Reason is none. Later versions may add reasons. See [reap.Reason].
type Reason = reap.Reason

// The reasons. If several limits have passed, the reason is the limit that passed first.
const (
	ReadIdle         = reap.ReadIdle         // nothing was received for Config.ReadTimeout
	WriteIdle        = reap.WriteIdle        // nothing was sent for Config.WriteTimeout
	AllIdle          = reap.AllIdle          // nothing was sent either way for Config.AllTimeout
	NoFirstByte      = reap.NoFirstByte      // no byte came within Config.FirstByteTimeout
	NoHandshake      = reap.NoHandshake      // no Conn.Ready within Config.HandshakeTimeout
	WriteStall       = reap.WriteStall       // the peer took no output for Config.WriteStallTimeout
	OverLimit        = reap.OverLimit        // more output waited than Config.OutputLimit allows
	BelowMinRate     = reap.BelowMinRate     // a message arrived more slowly than Config.MinRate
	HeartbeatTimeout = reap.HeartbeatTimeout // the peer did not answer the pings of Config.Heartbeat
	MaxAge           = reap.MaxAge           // the connection reached Config.MaxAge
	Drained          = reap.Drained          // Reaper.Drain was called
	Kicked           = reap.Kicked           // Reaper.Kick was called
	Shed             = reap.Shed             // closed to make room, see Config.MaxConnections

	firstReason = verdict.First
	lastReason  = verdict.Last
	lastDue     = verdict.LastDue     // the reasons after it have no deadline
	reasons     = int(lastReason) + 1 // with the zero Reason
	idleReasons = verdict.IdleReasons
)

// ErrNotWatched is returned for a connection that the Reaper does not watch: it is closed, it is a
// datagram socket, or it was not opened through this Reaper.
var ErrNotWatched = reap.ErrNotWatched

// ReapError is the error that OnClose gets for a connection that the Reaper has closed. With
// errors.Is it matches its Reason, and os.ErrDeadlineExceeded if Timeout is true. For all other
// connections OnClose gets the error of gnet: nil if the handler has closed the connection or the
// engine stops, io.EOF within an *os.SyscallError if the peer has, or why a read or a write failed.
// See [reap.Error] for the fields.
type ReapError = reap.Error

// Event is the observation that a connection is idle. See [reap.Event] for the fields.
type Event = reap.Event
