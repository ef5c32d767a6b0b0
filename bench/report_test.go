package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestSummarize(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		want   summary
	}{
		{[]float64{3}, summary{3, 3, 3}},
		{[]float64{3, 1}, summary{2, 1, 3}},
		{[]float64{9, 1, 4}, summary{4, 1, 9}},
		{[]float64{4, 3, 2, 1}, summary{2.5, 1, 4}},
	} {
		if got := summarize(tc.values); got != tc.want {
			t.Errorf("summarize(%v) = %v, want %v", tc.values, got, tc.want)
		}
	}
	if summarize(nil).exists() {
		t.Error("a summary of nothing exists")
	}
}

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 0.014: "0.01", 1: "1.00", 9.994: "9.99", 9.996: "10.0", 35.25: "35.2", 99.96: "100", 1234.5: "1,234",
		1e6: "1,000,000", -9.5: "-9.50", -1500: "-1,500", -123: "-123",
	} {
		if got := number(x); got != want {
			t.Errorf("number(%g) = %q, want %q", x, got, want)
		}
	}
	if got := number(math.NaN()); got != "-" {
		t.Errorf("number(NaN) = %q, want a dash", got)
	}
}

// sample is a record of three rounds in which one subject did not finish and one is absent.
func sample() *record {
	runs := func(metric string, values ...float64) (list []metrics) {
		for _, v := range values {
			list = append(list, metrics{metric: v})
		}
		return list
	}
	return &record{
		Command: "go run .", Rounds: 3, Absent: map[string]string{nettyName: "no java command"},
		Series: []*series{
			{Work: workReschedule, Subject: "wheel.Wheel", N: 1000, Runs: runs("ns", 20, 10, 30)},
			{Work: workReschedule, Subject: "time.AfterFunc", N: 1000, Runs: runs("ns", 50, 70, 60)},
			{Work: workReschedule, Subject: "antlabs/timer Reset", N: 1000, Failure: "stuck: for good"},
			{Work: workHeartbeat, Subject: "wheel.Wheel", N: 1000, Runs: runs("cpu_ns", 100, 110, 120)},
			{Work: workHeartbeat, Subject: "time.AfterFunc", N: 1000, Runs: runs("cpu_ns", 120, 130, 140)},
			{Work: workHeartbeat, Subject: noneName, N: 1000, Runs: runs("cpu_ns", 90, 100, 95)},
		},
	}
}

func TestReport(t *testing.T) {
	got := report(sample())
	for _, want := range []string{
		"| wheel.Wheel | 20.0 (10.0–30.0) | 1.00 |",
		"| time.AfterFunc | 60.0 (50.0–70.0) | 3.00 |",
		"| antlabs/timer Reset | failed | - |",
		"- antlabs/timer Reset failed at n = 1,000 after 0 good rounds: stuck: for good.",
		"- Left out: Netty HashedWheelTimer, no java command.",
		"| time.AfterFunc | 35.0 (25.0–45.0) | ≈ 2.33 |", // less the harness' median of 95
		"| time.AfterFunc | 130 (120–140) | ≈ 1.18 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

func TestExpiryMetrics(t *testing.T) {
	timers := make([]expected, 4)
	for i, e := range []time.Duration{-time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond} {
		timers[i].error = e
		timers[i].fires.Store(1)
	}
	timers[2].fires.Store(2)
	got := expiryMetrics(timers, 3*time.Microsecond, 3)
	for metric, want := range map[string]float64{
		"early": 1, "lost": 1, "twice": 1, "earliest_ms": -1, "p50_ms": 2, "max_ms": 5, "cpu_ns": 1000,
	} {
		if got[metric] != want {
			t.Errorf("%s = %g, want %g", metric, got[metric], want)
		}
	}
}

func TestSubjectsTakeTurns(t *testing.T) {
	var steps []step
	for _, n := range []int{10, 20} {
		for _, name := range []string{"a", "b", "c"} {
			steps = append(steps, step{work{name: "w"}, candidate{name: name}, n})
		}
	}
	first := map[string]int{}
	for round := 1; round <= 6; round++ {
		all := inTurn(steps, round)
		if len(all) != len(steps) {
			t.Fatalf("round %d has %d steps, want %d", round, len(all), len(steps))
		}
		seen := map[string]bool{}
		for i, s := range all {
			if want := steps[i/3*3].n; s.n != want {
				t.Errorf("round %d, step %d: size %d, want %d", round, i, s.n, want)
			}
			seen[s.String()] = true
		}
		if len(seen) != len(steps) {
			t.Errorf("round %d has %d different steps, want %d", round, len(seen), len(steps))
		}
		first[all[0].candidate.name]++
	}
	if len(first) != 3 {
		t.Errorf("the first of a round are %v, want all in turn", first)
	}
}

func TestFailureIsNotTriedWithMore(t *testing.T) {
	w, _ := findWork(workReschedule)
	c, _ := findCandidate("antlabs/timer Reset")
	r := &record{Series: []*series{{Work: w.name, Subject: c.name, N: w.sizes[0], Failure: "stuck"}}}
	m := &measurer{record: r}
	o, err := m.do(t.Context(), step{w, c, w.sizes[1]}, 1)
	if err != nil || !strings.HasPrefix(o.Failure, "skipped") {
		t.Errorf("outcome %v, error %v; want it skipped", o, err)
	}
}
