package idle

import (
	"fmt"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// A Reason says why a connection is closed by the Reaper. It is an error, so that OnClose can compare:
//
//	if errors.Is(err, idle.ReadIdle) {
//
// The zero Reason is none. Later versions may add reasons.
type Reason uint8

// The reasons. If several limits have passed, the one that passed first is the reason.
const (
	// ReadIdle: the peer sent nothing for Config.ReadTimeout. Netty calls it READER_IDLE.
	ReadIdle Reason = iota + 1
	// WriteIdle: nothing was sent to the peer for Config.WriteTimeout. Netty calls it WRITER_IDLE.
	WriteIdle
	// AllIdle: nothing was sent in either direction for Config.AllTimeout. Netty calls it ALL_IDLE.
	AllIdle
	// NoFirstByte: the peer sent no byte within Config.FirstByteTimeout.
	NoFirstByte
	// NoHandshake: Conn.Ready was not called within Config.HandshakeTimeout.
	NoHandshake
	// WriteStall: the peer took no output for Config.WriteStallTimeout.
	WriteStall
	// OverLimit: more output waited than Config.OutputLimit allows.
	OverLimit
	// BelowMinRate: an open message came in more slowly than Config.MinRate.
	BelowMinRate
	// HeartbeatTimeout: the peer did not answer the pings of Config.Heartbeat.
	HeartbeatTimeout
	// MaxAge: the connection reached Config.MaxAge.
	MaxAge
	// Drained: Reaper.Drain was called.
	Drained
	// Kicked: Reaper.Kick was called.
	Kicked
	// Shed: the connection made room for others, see Config.MaxConnections.
	Shed

	firstReason = ReadIdle
	lastReason  = Shed
	lastDue     = Reason(verdict.LastDue) // the reasons after it have no deadline
	reasons     = int(lastReason) + 1     // with the zero Reason
	idleReasons = verdict.IdleReasons
)

// The verdict uses the same numbers. This does not compile if it has more or fewer.
var _ = [1]struct{}{}[Shed-Reason(verdict.Shed)]

// Error returns the name of the reason in logs, metrics and reports, such as "read idle".
func (r Reason) Error() string { return verdict.Reason(r).String() }

// MarshalText returns the name.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.Error()), nil }

// UnmarshalText reads a name that MarshalText has returned.
func (r *Reason) UnmarshalText(text []byte) error {
	for known := firstReason; known <= lastReason; known++ {
		if known.Error() == string(text) {
			*r = known
			return nil
		}
	}
	return fmt.Errorf("idle: %q is not the name of a reason", text)
}

// isIdle reports whether it is an idle event, about which OnIdle decides.
func (r Reason) isIdle() bool { return verdict.Reason(r).IsIdle() }

func (r Reason) valid() bool { return verdict.Reason(r).Valid() }
