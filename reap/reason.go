package reap

import "fmt"

// A Reason says why a connection is closed. It is an error, so that errors can be compared with it:
//
//	if errors.Is(err, reap.ReadIdle) {
//
// The zero Reason is none. Later versions may add reasons.
type Reason uint8

// The reasons. If several limits have passed, the reason is the limit that passed first.
const (
	// ReadIdle: the peer sent nothing for Config.ReadTimeout. Netty calls it READER_IDLE.
	ReadIdle Reason = iota + 1
	// WriteIdle: nothing was sent to the peer for Config.WriteTimeout. Netty calls it WRITER_IDLE.
	WriteIdle
	// AllIdle: nothing was sent in either direction for Config.AllTimeout. Netty calls it ALL_IDLE.
	AllIdle
	// NoFirstByte: the peer sent no byte within Config.FirstByteTimeout.
	NoFirstByte
	// NoHandshake: Ready was not called within Config.HandshakeTimeout.
	NoHandshake
	// WriteStall: the peer took no output for Config.WriteStallTimeout.
	WriteStall
	// OverLimit: more output waited than Config.OutputLimit allows.
	OverLimit
	// BelowMinRate: a message arrived more slowly than Config.MinRate.
	BelowMinRate
	// HeartbeatTimeout: the peer did not answer the pings of Config.Heartbeat.
	HeartbeatTimeout
	// HalfClosed: the peer had ended its side for Config.HalfClosedTimeout, and the server had not.
	HalfClosed
	// MaxAge: the connection reached Config.MaxAge.
	MaxAge
	// Drained: Drain was called.
	Drained
	// Kicked: Kick was called.
	Kicked
	// Shed: the connection was closed to make room for others, see Config.MaxConnections.
	Shed
)

var names = [Shed + 1]string{
	ReadIdle:         "read idle",
	WriteIdle:        "write idle",
	AllIdle:          "all idle",
	NoFirstByte:      "no first byte",
	NoHandshake:      "no handshake",
	WriteStall:       "write stall",
	OverLimit:        "over limit",
	BelowMinRate:     "below min rate",
	HeartbeatTimeout: "heartbeat timeout",
	HalfClosed:       "half closed",
	MaxAge:           "max age",
	Drained:          "drained",
	Kicked:           "kicked",
	Shed:             "shed",
}

// Error returns the name of the reason in logs, metrics and reports, such as "read idle".
func (r Reason) Error() string {
	if r == 0 || r > Shed {
		return fmt.Sprintf("reason %d", uint8(r))
	}
	return names[r]
}

// MarshalText returns the name.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.Error()), nil }

// UnmarshalText reads a name that MarshalText has returned.
func (r *Reason) UnmarshalText(text []byte) error {
	for known := ReadIdle; known <= Shed; known++ {
		if known.Error() == string(text) {
			*r = known
			return nil
		}
	}
	return fmt.Errorf("idle: %q is not the name of a reason", text)
}
