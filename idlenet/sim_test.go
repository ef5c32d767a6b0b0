package idlenet

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"

	"github.com/idlewheel/idlewheel/reap"
)

// simSeeds are the seeds of worlds in which a promise was once broken.
var simSeeds = []uint64{
	500372,     // the process was stopped between a question and the choice of a connection to shed
	500802,     // shed a step of the kernel's clock too early
	520132,     // a ping waited for the retry of an earlier one, which was answered
	2165700506, // a limit that passed with the maximum age was noticed two ticks after the goodbye
}

// TestSimulation runs the code of this package in simulated worlds. An oracle that knows the
// physical events checks each verdict.
//
// IDLEWHEEL_SIMULATE sets the duration, such as 60s. IDLEWHEEL_SEED replays one world, and
// IDLEWHEEL_BASE_SEED sets the first of the others.
func TestSimulation(t *testing.T) {
	if text := os.Getenv("IDLEWHEEL_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		simulate(t, seed, &simTotal{})
		return
	}
	// The worlds are the same each time, unless IDLEWHEEL_SIMULATE asks for a search.
	length, worlds := time.Minute, uint64(150)
	if testing.Short() {
		worlds = 40
	}
	if text := os.Getenv("IDLEWHEEL_SIMULATE"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		worlds = math.MaxUint64
	}
	total := &simTotal{}
	for _, seed := range simSeeds {
		simulate(t, seed, total)
	}
	base := uint64(1)
	if worlds == math.MaxUint64 {
		base = uint64(time.Now().UnixNano())
	}
	if text := os.Getenv("IDLEWHEEL_BASE_SEED"); text != "" {
		base, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("base seed %d", base)
	began := time.Now()
	for seed := base; seed-base < worlds && time.Since(began) < length && !t.Failed(); seed++ {
		simulate(t, seed, total)
	}
	if t.Failed() {
		return // the last lines are the seed and the broken promise
	}
	total.report(t, time.Since(began))
	if length >= 5*time.Minute {
		total.checkVacuity(t)
	}
}

// simulate runs the world of a seed. If a promise was broken, it runs the world again with a trace.
func simulate(t *testing.T, seed uint64, total *simTotal) {
	w := newSimWorld(seed)
	w.simulate()
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
	again.simulate()
	if again.failure == nil || again.failure.promised != f.promised {
		t.Errorf("seed %d does not replay exactly", seed)
	}
	kept := 40
	if os.Getenv("IDLEWHEEL_SEED") != "" {
		kept = len(again.lines)
	}
	for _, line := range again.lines[max(len(again.lines)-kept, 0):] {
		fmt.Println(line)
	}
	t.Errorf("seed %d: promised: %s\nbut: %s\nworld: %s\nreplay: IDLEWHEEL_SEED=%d go test ./idlenet -run TestSimulation",
		seed, f.promised, f.happened, again.describe(), seed)
}

func (w *simWorld) describe() string {
	return fmt.Sprintf("kind %d, unix %v, jiffy %v, %d shards, %d connections, server %+v, %v", w.kind, w.unix, w.jiffy,
		len(w.ln.shards), len(w.all), w.server, w.cfg.LogValue())
}

// simulate runs the world until its horizon, closes all connections, and checks that nothing is
// left.
func (w *simWorld) simulate() {
	for w.failure == nil && w.now < w.horizon {
		w.sleep(min(w.horizon-w.now, time.Second))
	}
	w.faulty, w.ends = false, true
	w.held = w.ln.Stats().Holds
	w.watchClosed()
	for _, l := range w.all {
		if l.openedAt != 0 {
			l.serverCloses()
		}
	}
	closed, patient := w.one(2), w.seed%8 == 0
	found := w.now + w.foundWithin(w.now)
	if closed {
		_ = w.ln.Close() // the goroutine searches for closed connections
		w.pollWake()
	} else if patient {
		found += time.Minute
	}
	for w.failure == nil && w.judging && w.now <= found && (closed || patient || w.ln.Connections() > 0) {
		w.sleep(w.cfg.Tick)
	}
	w.sleep(2 * w.server.late)
	if w.judging && w.failure == nil && (closed || patient) {
		w.violate(nil, fmt.Sprintf("the goroutine ends by %v, when all connections are closed", found), "it runs")
	}
	if n := w.ln.Connections(); n != 0 && w.failure == nil {
		w.violate(nil, "Connections is 0 in the end", strconv.Itoa(n))
	}
	if w.failure == nil {
		w.checkCounts()
	}
	switch {
	case w.failure != nil:
	case closed:
		w.checkReasonsGo()
	case patient:
		w.checkEmpty()
	}
}

// checkReasonsGo checks that a closed Listener has forgotten everything a minute later, as soon as
// it has a connection again.
func (w *simWorld) checkReasonsGo() {
	w.sleep(time.Minute + 2*w.cfg.Tick)
	l := w.newLife()
	l.use, l.deadline = simUseConnState, 0
	l.openedFrom = w.now
	c, err := w.ln.Watch(l.conn)
	if err != nil {
		w.violate(l, "Watch takes a connection", err.Error())
		return
	}
	l.c = c
	l.opened()
	w.sleep(4 * w.cfg.Tick)
	l.serverCloses()
	w.sleep(3*w.cfg.Tick + 2*w.server.late)
	if l.reason == nil && w.failure == nil { // in a drain its reason is kept
		w.checkEmpty()
	}
}

// checkEmpty checks that the Listener has forgotten everything.
func (w *simWorld) checkEmpty() {
	for _, s := range w.ln.shards {
		left := 0
		for id := range s.Len() {
			if s.At(id).Used() {
				left++
			}
		}
		if left+s.ids.len()+s.Ends.Len()+s.Schedule.Len()+len(s.calls) > 0 && w.failure == nil {
			w.violate(nil, "the Listener is empty in the end", fmt.Sprintf("%d connections, %d addresses, %d ends, %d entries, %d calls",
				left, s.ids.len(), s.Ends.Len(), s.Schedule.Len(), len(s.calls)))
		}
	}
}

// A simTotal adds up many worlds.
type simTotal struct {
	worlds int
	simCounts
}

func (s *simTotal) add(w *simWorld) {
	s.worlds++
	s.lives += w.lives
	s.refused += w.refused
	s.events += w.events
	s.pings += w.pings
	s.goodbyes += w.goodbyes
	s.stops += w.stops
	s.pauses += w.pauses
	s.netDowns += w.netDowns
	s.updates += w.updates
	s.reused += w.reused
	s.cut += w.simCounts.cut
	s.told += w.simCounts.told
	s.raced += w.raced
	s.held += w.held
	s.reaps.Add(&w.reaps)
}

func (s *simTotal) report(t *testing.T, took time.Duration) {
	t.Logf("%d worlds, %d lives (%.0f a second), %d refused; %d stops, %d pauses, %d network outages, %d holds; "+
		"%d idle events, %d pings, %d goodbyes, %d updates; %d told, %d closed by the Listener, %d closed at a question; %d addresses used again",
		s.worlds, s.lives, float64(s.lives)/took.Seconds(), s.refused, s.stops, s.pauses, s.netDowns, s.held,
		s.events, s.pings, s.goodbyes, s.updates, s.told, s.cut, s.raced, s.reused)
	for k := verdict.First; k <= verdict.Last; k++ {
		t.Logf("%-17v %d", k, s.reaps[k])
	}
}

// checkVacuity fails if something never occurred.
func (s *simTotal) checkVacuity(t *testing.T) {
	for k := verdict.First; k <= verdict.Last; k++ {
		if s.reaps[k] == 0 && k != reap.OverLimit {
			t.Errorf("no connection ended as %v", k)
		}
	}
	for what, n := range map[string]int{
		"refused": s.refused, "stops": s.stops, "pauses": s.pauses, "network outages": s.netDowns, "holds": int(s.held),
		"idle events": s.events, "pings": s.pings, "goodbyes": s.goodbyes, "updates": s.updates, "told": s.told, "cut": s.cut,
		"closed at a question": s.raced, "addresses used again": s.reused,
	} {
		if n == 0 {
			t.Errorf("%s: none", what)
		}
	}
}
