package idle

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/reap"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// simSeeds are the seeds of worlds in which a promise was once broken.
var simSeeds = []uint64{
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
}

// TestSimulation runs the code of this package in simulated worlds. An oracle that knows the
// physical events checks each verdict.
//
// IDLEWHEEL_SIMULATE sets the duration, such as 60s. IDLEWHEEL_SEED replays one world.
func TestSimulation(t *testing.T) {
	if text := os.Getenv("IDLEWHEEL_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		simulate(t, seed, &simTotal{})
		return
	}
	length := 5 * time.Second
	if text := os.Getenv("IDLEWHEEL_SIMULATE"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	total := &simTotal{}
	for _, seed := range simSeeds {
		simulate(t, seed, total)
	}
	base := uint64(time.Now().UnixNano())
	if text := os.Getenv("IDLEWHEEL_BASE_SEED"); text != "" {
		base, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("base seed %d", base)
	began := time.Now()
	for seed := base; time.Since(began) < length && !t.Failed(); seed++ {
		simulate(t, seed, total)
	}
	if t.Failed() {
		return // the last lines are the seed and the broken promise
	}
	total.report(t, time.Since(began))
	if length >= 20*time.Second {
		total.checkVacuity(t)
	}
}

// simulate runs the world of a seed. If a promise was broken, it runs the world again with a trace.
func simulate(t *testing.T, seed uint64, total *simTotal) {
	w := newSimWorld(seed)
	w.run()
	total.add(w)
	f := w.failure
	if f == nil {
		return
	}
	traced := -1
	if f.life != nil {
		traced = f.life.id
	}
	again := newSimWorld(seed)
	again.traced = &traced
	again.run()
	if again.failure == nil || again.failure.promised != f.promised {
		t.Errorf("seed %d does not replay exactly", seed)
	}
	kept := 60
	if os.Getenv("IDLEWHEEL_SEED") != "" {
		kept = len(again.lines)
	}
	lines := again.lines[max(len(again.lines)-kept, 0):]
	for _, line := range lines {
		fmt.Println(line)
	}
	t.Errorf("seed %d: promised: %s\nbut: %s\nworld: %s\nreplay: IDLEWHEEL_SEED=%d go test ./idle -run TestSimulation",
		seed, f.promised, f.happened, again.describe(), seed)
}

func (w *simWorld) describe() string {
	return fmt.Sprintf("kind %d, family %d, jiffy %v, %d loops, %d connections, slow %v, %v", w.kind, w.family, w.jiffy,
		len(w.loops), len(w.all), w.slow, w.cfg.LogValue())
}

func sprint(what string, got, want uint64) string {
	return fmt.Sprintf("%s is %d, want %d", what, got, want)
}

// A simTotal adds up many worlds.
type simTotal struct {
	worlds int
	simCounts
}

func (s *simTotal) add(w *simWorld) {
	s.worlds++
	s.lives += w.lives
	s.events += w.events
	s.refused += w.refused
	s.stops += w.stops
	s.pauses += w.pauses
	s.netDowns += w.netDowns
	s.held += w.held
	s.faultyLives += w.faultyLives
	s.totals += w.totals
	s.eofs += w.eofs
	s.timerCalls += w.timerCalls
	s.errs += w.errs
	for k := range s.reaps {
		s.reaps[k] += w.reaps[k]
	}
}

func (s *simTotal) report(t *testing.T, took time.Duration) {
	t.Logf("%d worlds, %d lives (%.0f a second), %d of them in worlds with faults; %d stops, %d pauses, %d network outages, %d holds, %d refused tasks, %d idle events, %d calls of timers, %d closes for the total of output",
		s.worlds, s.lives, float64(s.lives)/took.Seconds(), s.faultyLives, s.stops, s.pauses, s.netDowns, s.held, s.refused, s.events, s.timerCalls, s.totals)
	for k := verdict.First; k <= verdict.Last; k++ {
		t.Logf("%-14v %d", k, s.reaps[k])
	}
}

// checkVacuity fails if a reason, a hold or a pause never occurred.
func (s *simTotal) checkVacuity(t *testing.T) {
	for k := verdict.First; k <= verdict.Last; k++ {
		if s.reaps[k] == 0 && k != reap.WriteIdle && k != reap.HalfClosed { // gnet closes it
			t.Errorf("no connection was closed as %v", k)
		}
	}
	if s.held == 0 || s.pauses == 0 {
		t.Error("no hold or no pause")
	}
	if s.totals == 0 {
		t.Error("no connection was closed because of the total of output")
	}
	if s.timerCalls == 0 {
		t.Error("no timer of a connection was called")
	}
}
