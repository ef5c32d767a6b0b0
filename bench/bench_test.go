package main

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/bench/internal/rounds"
)

// waitFor lets time pass for a subject until an instant.
func waitFor(s subject, until time.Time) {
	for time.Now().Before(until) {
		time.Sleep(time.Millisecond)
		s.step()
	}
}

func TestTimersExpireOnceUnlessCancelled(t *testing.T) {
	const n = 300
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			var fires [n]atomic.Int32
			s := k.new(config{n: n, fire: func(i int) { fires[i].Add(1) }})
			defer s.close()
			began := time.Now()
			for i := range n {
				s.schedule(i, 300*time.Millisecond+time.Duration(i)*time.Millisecond/3)
			}
			for i := 0; i < n; i += 3 {
				s.cancel(i)
				s.reschedule(i+1, 500*time.Millisecond)
			}
			waitFor(s, began.Add(1500*time.Millisecond))
			for i := range n {
				want := int32(1)
				if i%3 == 0 {
					want = 0
				}
				if got := fires[i].Load(); got != want {
					t.Errorf("timer %d (cancelled %t, moved %t) has fired %d times, want %d", i, i%3 == 0, i%3 == 1, got, want)
				}
			}
		})
	}
}

func TestATouchDelaysTheEnd(t *testing.T) {
	const timeout = 600 * time.Millisecond
	for _, k := range kinds() {
		if k.name == "RussellLuo/timingwheel" || k.name == "antlabs/timer" { // they fire early
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			var ended [3]atomic.Int64
			began := time.Now()
			s := k.new(config{n: len(ended), timeout: timeout, fire: func(i int) { ended[i].Store(int64(time.Since(began))) }})
			defer s.close()
			for i := range ended {
				s.schedule(i, timeout)
			}
			waitFor(s, began.Add(timeout/2))
			s.reschedule(1, timeout)
			s.reschedule(2, timeout)
			waitFor(s, began.Add(4*timeout))
			first, touched := time.Duration(ended[0].Load()), time.Duration(ended[1].Load())
			if first < timeout || first > timeout*5/4 {
				t.Errorf("without a touch the end comes after %v, want %v", first, timeout)
			}
			if touched < timeout*3/2-tick || ended[2].Load() == 0 {
				t.Errorf("with a touch at %v the end comes after %v, want %v", timeout/2, touched, timeout*3/2)
			}
		})
	}
}

func TestTimersShareOneCallback(t *testing.T) {
	for _, k := range kinds() {
		s := k.new(config{n: 1})
		s.schedule(0, time.Millisecond)
		waitFor(s, time.Now().Add(20*time.Millisecond)) // must not panic
		s.close()
	}
}

func TestAQuickRunFillsTheTable(t *testing.T) {
	text, err := compare(rounds.Options{Quick: true, Runs: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		if !strings.Contains(text, "\n| "+f.name+", 1,000, "+f.unit+" | ") {
			t.Errorf("the table has no row %s", f.name)
		}
	}
	for _, k := range kinds() {
		if !strings.Contains(text, "- "+k.name) {
			t.Errorf("there is no note about %s", k.name)
		}
	}
	if strings.Contains(text, "| - ") {
		t.Errorf("a cell is empty:\n%s", text)
	}
}

func TestTheTableSaysThatNettyIsMissing(t *testing.T) {
	r := rounds.Results{}
	for _, k := range kinds() {
		r[k.name] = map[string]rounds.Values{"schedule": {10}, "expire": {5}, "early": {0}}
	}
	r["antlabs/timer"] = map[string]rounds.Values{"schedule": {30}, "expire": {5}, "early": {40}}
	got := render(rounds.Options{}, append(kinds(), kind{name: nettyName, note: "no jar."}), []int{10}, []rounds.Results{r})
	for _, want := range []string{
		"| schedule, 10, ns | 10.0 | 10.0 ≈ ×1.00 | 10.0 ≈ ×1.00 | 10.0 ≈ ×1.00 | 10.0 ≈ ×1.00 | 30.0 ×3.00 | not installed |",
		"5.00 ≈ ×1.00, 40 % early | not installed |",
		"- Netty HashedWheelTimer: no jar.",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, got)
		}
	}
}
