package sim

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// Run runs worlds in which the oracle checks each verdict: first those of the seeds of the Traits,
// then others for five seconds. IDLEWHEEL_SIMULATE sets another duration, such as 60s, and draws
// the first of the others by chance. IDLEWHEEL_BASE_SEED sets it. IDLEWHEEL_SEED replays one world.
func Run(t *testing.T, traits Traits, build func(seed uint64) *World) {
	if text := os.Getenv("IDLEWHEEL_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		runWorld(t, build, seed, math.MaxInt)
		return
	}
	length, base := 5*time.Second, uint64(1)
	text, isLong := os.LookupEnv("IDLEWHEEL_SIMULATE")
	if isLong {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		base = uint64(time.Now().UnixNano())
	}
	if text := os.Getenv("IDLEWHEEL_BASE_SEED"); text != "" {
		base, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("base seed %d", base)
	sums := map[string]int{}
	try := func(seed uint64) {
		for what, n := range runWorld(t, build, seed, 60).N {
			sums[what] += n
		}
	}
	for _, seed := range traits.Seeds {
		try(seed)
	}
	began, seed := time.Now(), base
	for ; time.Since(began) < length && !t.Failed(); seed++ {
		try(seed)
	}
	if t.Failed() {
		return // the last lines are the seed and the broken promise
	}
	ran := seed - base + uint64(len(traits.Seeds))
	t.Logf("%d worlds, %.0f a second", ran, float64(ran)/time.Since(began).Seconds())
	traits.report(t, sums, isLong && length >= 20*time.Second)
}

// runWorld runs the world of a seed. If a promise was broken, it runs it again with a trace.
func runWorld(t *testing.T, build func(seed uint64) *World, seed uint64, lines int) *World {
	w := build(seed)
	w.run()
	if !w.Failed() {
		return w
	}
	again, traced := build(seed), -1
	if w.failure != nil {
		traced = w.failure.ID
	}
	again.traced = &traced
	again.run()
	if again.promised != w.promised {
		t.Errorf("seed %d does not replay exactly", seed)
	}
	for _, line := range again.lines[max(len(again.lines)-lines, 0):] {
		fmt.Println(line)
	}
	t.Errorf("seed %d: promised: %s\nworld: kind %d, family %d, jiffy %v, %d loops, %d connections, %+v\n"+
		"replay: IDLEWHEEL_SEED=%d go test ./%s -run TestSimulation", seed, w.Failure(), w.Kind, w.Family, w.Jiffy,
		len(w.Loops), len(w.All), *w.Set, seed, w.Traits.Package)
	return w
}

// report logs the counts of all worlds. In a long run it fails if one of them is 0.
func (traits Traits) report(t *testing.T, sums map[string]int, isLong bool) {
	all := append([]string{
		"lives", "stops", "pauses", "network outages", "holds", "holds of groups", "idle events", "pings", "goodbyes", "updates", "kicks",
		"observed", "refused", "early segments",
	}, traits.Counts...)
	for k := verdict.First; k <= verdict.Last; k++ {
		all = append(all, k.Error())
	}
	for _, what := range all {
		t.Logf("%-20s %d", what, sums[what])
		if isLong && sums[what] == 0 && !slices.Contains(traits.Never, what) {
			t.Errorf("%s: none", what)
		}
	}
}
