package idle

import (
	"fmt"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// Kind says in which way a connection is dead or has to go. The zero Kind is none.
type Kind uint8

// The kinds, in the order in which they are given as the reason where deadlines of several have passed at the same
// instant. Otherwise the reason is the earliest, however late the judgement comes.
const (
	// ReadIdle: nothing came from the peer for the read timeout. Netty calls it READER_IDLE.
	ReadIdle Kind = iota + 1
	// WriteIdle: nothing was sent to the peer for the write timeout. Netty calls it WRITER_IDLE.
	WriteIdle
	// AllIdle: nothing was sent in either direction. Netty calls it ALL_IDLE.
	AllIdle
	// NoFirstByte: the peer has connected and said nothing.
	NoFirstByte
	// NoHandshake: MarkReady was not called in time.
	NoHandshake
	// WriteStall: output waits, and the peer takes none of it.
	WriteStall
	// OverLimit: more output waits than Config.OutputLimit allows.
	OverLimit
	// SlowPeer: an open message comes in more slowly than Config.MinRate.
	SlowPeer
	// NoAnswer: the heartbeats of Config.Heartbeat were not answered.
	NoAnswer
	// TooOld: the connection has reached Config.MaxAge.
	TooOld
	// Drained: Reaper.Drain was called.
	Drained
	// Kicked: Reaper.Kick was called.
	Kicked
	// Shed: there was no room, see Config.MaxConnections.
	Shed

	firstKind = ReadIdle
	lastKind  = Shed
	lastDue   = Kind(verdict.Last) // the kinds after it have no deadline
	kinds     = int(lastKind) + 1  // with the zero Kind
	idleKinds = verdict.IdleKinds  // the first ones, which are idle events
)

var kindNames = [kinds]string{
	ReadIdle:    "read idle",
	WriteIdle:   "write idle",
	AllIdle:     "all idle",
	NoFirstByte: "no first byte",
	NoHandshake: "no handshake",
	WriteStall:  "write stall",
	OverLimit:   "over limit",
	SlowPeer:    "slow peer",
	NoAnswer:    "no answer",
	TooOld:      "too old",
	Drained:     "drained",
	Kicked:      "kicked",
	Shed:        "shed",
}

// String returns the name as it appears in logs and reports.
func (k Kind) String() string {
	if k.valid() {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// MarshalText returns the name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

func (k Kind) valid() bool { return k >= firstKind && k <= lastKind }

// isIdle reports whether it is an idle event, about which OnIdle decides.
func (k Kind) isIdle() bool { return k >= ReadIdle && k <= AllIdle }

// Kinds returns all kinds in their order.
func Kinds() []Kind {
	all := make([]Kind, 0, lastKind)
	for k := firstKind; k <= lastKind; k++ {
		all = append(all, k)
	}
	return all
}
