package idlenet

import (
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/internal/testing/sim"
	"github.com/idlewheel/idlewheel/reap"
)

// simTraits are those of a Listener. A run without a duration has the same worlds each time.
var simTraits = sim.Traits{
	Package: "idlenet", Late: 2 * time.Millisecond, LatePer: 10 * time.Microsecond, SlowGroups: 3200 * time.Millisecond,
	Seeds: []uint64{
		41,     // a handshake ended while bytes of the peer waited unread
		630,    // a limit that passed with the maximum age was noticed two ticks after the goodbye
		1201,   // shed a step of the kernel's clock early
		7655,   // the process was stopped between a question and the choice of a connection to shed
		14008,  // a ping waited for the retry of an earlier one, which was answered
		100510, // a reset discarded bytes after which pings are counted
		312157, // an outage ended just before an Update, and was too short afterwards
		909196, // an address was used again while a ping for it waited
	},
	Worlds: 150, Short: 40,
	Counts: []string{"told to close", "closed by the Listener", "closed at a question", "addresses used again"},
	Never:  []string{reap.OverLimit.Error()},
}

// TestSimulation runs the code of this package in simulated worlds, see [sim.Run].
func TestSimulation(t *testing.T) { sim.Run(t, simTraits, newSimWorld) }
