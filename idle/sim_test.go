package idle

import (
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/internal/testing/sim"
	"github.com/idlewheel/idlewheel/reap"
)

// simTraits are those of a Reaper.
var simTraits = sim.Traits{
	Package: "idle", Late: 4 * time.Millisecond, LatePer: 40 * time.Microsecond, Loops: true,
	Counts: []string{"closed for Total", "ended by the peer", "failed", "timer calls", "refused tasks"},
	Never:  []string{reap.HalfClosed.Error()},
	Seeds: []uint64{
		1795332955799069900, // an outage ended while a task ran
		1795332951452096579, // a postponed deadline was filed too late
		1795333034770829956, // the first byte of a window was not counted
		1795333031468372096, // the process was stopped after a question to the kernel
		1795332939211283488, // judged as of an instant after the question
		1795332942455382037, // a slow OnOpen counted against MinRate.Always
		1795332907774925648, // a new connection was filed under the wrong deadline
		1795332904830259470, // calls put off the checks of output
		1795332901501352670, // shed a moment too early
		1795332957011509084, // a gap in a silence counted twice
		1795333658262713065, // a gap that began in a silence counted once more
		1795332986064435312, // the stalls of a busy loop grew together
		1795343072957401851, // bytes were sent while the process was stopped before OnIdle
		1795343667810281423, // shed although other loops had closed enough connections meanwhile
		1795343460639892440, // the oracle counted a stop that began after the verdict
		1795343460634845168, // the oracle knew more about output than a kernel without counters
		1795344014546603797, // the oracle merged two late rounds into one outage
		1795344014549879067, // the oracle took a write for a sign of a running loop
		1795344696179013125, // a question took six seconds and missed a retransmission
		1795333305167975915, // a sweep did not know how long its question took
		1795333471537849852, // a write shortened the grace of all idle
		1795334056672576074, // a stop did not count after a blocked loop
		1795334291948310052, // a silence was taken for a tick shorter than it was
		202611220000072053,  // a byte too many was asked of a message, by rounding
		1795355690484981249, // the oracle asked at the close whether bytes were retransmitted
		1795355070560339562, // the oracle told more outages apart than the Reaper
		1795352185104296175, // the grace of an outage went on during the next one
		1795350889004700497, // a Touch in a slow OnOpen was taken for the last write
		1795354738108757347, // the oracle knew when in a long stop bytes were sent
		1795376068003145901, // the oracle told two blocks apart that the Reaper had joined
		1795349885621527410, // the oracle missed that kernels date new bytes by retransmissions
		1795374754450293586, // a check found less output than the total, and a connection was closed
		1795374857474689703, // the process was stopped between such a check and the close
		7000000000000202958, // sweeps in each tick made a loop quiet, and the next one came late
		1795374668064098014, // the oracle counted output of an exempt connection
		5150,                // the oracle took a loop to follow an Update at once
		715607,              // two Updates came while a task began
	},
}

// TestSimulation runs the code of this package in simulated worlds, see [sim.Run].
func TestSimulation(t *testing.T) { sim.Run(t, simTraits, newSimWorld) }
