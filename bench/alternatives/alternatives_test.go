package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childVerb {
		os.Exit(childMain(os.Args[2]))
	}
	os.Exit(m.Run())
}

// In a bubble the clock is exact, so the test checks exact promises of each keeper.
func TestKeepersFindExactlyTheSilentConnections(t *testing.T) {
	for _, k := range keeperKinds() {
		if k.name == harness {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, err := measureKeeper(job{Subject: k.name, N: 1000, Hold: time.Second, Heartbeat: 3 * time.Second, Timeout: 2 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				if m["early"] != 0 || m["lost"] != 0 {
					t.Errorf("%g found too early, %g not at all; want none", m["early"], m["lost"])
				}
				limit := 2 * tick
				if strings.Contains(k.name, "heap") || strings.Contains(k.name, "scan") {
					limit += scanning
				}
				if m["late_max_ms"] > limit.Seconds()*1000 {
					t.Errorf("found up to %g ms late, want at most %v", m["late_max_ms"], limit)
				}
			})
		})
	}
}

func TestServersCloseSilentConnections(t *testing.T) {
	for _, k := range serverKinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			m, err := do(t.Context(), newJob(true, true, k.name))
			if err != nil {
				t.Fatal(err)
			}
			if m["bytes"] <= 0 {
				t.Errorf("%g bytes for each connection", m["bytes"])
			}
			if _, ok := m["late_max_ms"]; ok != k.reaps || m["early"] != 0 && !k.early {
				t.Errorf("lateness is known: %v, want %v; %g closed too early, want none", ok, k.reaps, m["early"])
			}
		})
	}
}

func TestMarkdown(t *testing.T) {
	r := newRecord(options{runs: 3})
	for _, v := range []float64{3, 1, 2} {
		r.keepers["wheel.Wheel"] = append(r.keepers["wheel.Wheel"], metrics{"touch_ns": v, "early": 0, "lost": 0})
		r.keepers["heap, Fix"] = append(r.keepers["heap, Fix"], metrics{"touch_ns": 100 * v, "early": v, "lost": 1234})
		r.servers["gnet alone"] = append(r.servers["gnet alone"], metrics{"bytes": 1000 * v})
	}
	got := r.markdown()
	for _, want := range []string{
		"| wheel.Wheel | 2.00 (1.00–3.00) | 1.00 |",
		// The maximum of early and lost.
		"| heap, Fix | 200 (100–300) | 100 | - | - | - | - | - | - | - | 3 | 1,234 |",
		"| gnet alone | 2,000 (1,000–3,000) | 1.00 |",
		"Medians of 3 rounds",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the tables lack %q", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]int{"--help": 0, "--bogus": 2, "--runs 0": 2, "word": 2} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != want || stderr.Len() == 0 {
			t.Errorf("%s: exit code %d, stderr %q; want %d and some words", args, code, stderr.String(), want)
		}
	}
}
