package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The program runs itself for each measurement, and the test binary does the same.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childVerb {
		os.Exit(childMain(os.Args[2:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// inGo returns the candidates that run in this process and keep timers.
func inGo() []candidate {
	var list []candidate
	for _, c := range candidates() {
		if !c.netty && c.only == nil {
			list = append(list, c)
		}
	}
	return list
}

func TestAdaptersFireOnceUnlessCancelled(t *testing.T) {
	const n = 300
	for _, c := range inGo() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var fires [n]atomic.Int32
			s, err := c.new(config{n: n, fire: func(i int) { fires[i].Add(1) }})
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			now := clock()
			for i := range n {
				s.schedule(i, 300*time.Millisecond+time.Duration(i)*time.Millisecond/3)
			}
			for i := 0; i < n; i += 3 {
				s.cancel(i)
				s.reschedule(i+1, 500*time.Millisecond)
			}
			drive(s, now, 1500*time.Millisecond)
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

func TestAdaptersShareOneCallback(t *testing.T) {
	for _, c := range inGo() {
		s, err := c.new(config{n: 1})
		if err != nil {
			t.Fatal(err)
		}
		s.schedule(0, time.Millisecond)
		drive(s, clock(), 20*time.Millisecond) // must not panic
		s.close()
	}
}

func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		args   string
		code   int
		stdout string
		stderr string
	}{
		{"--help", 0, "--only matches", ""},
		{"--bogus", 2, "", "-bogus"},
		{"--runs 0", 2, "", "at least 1"},
		{"--only (", 2, "", "--only"},
		{"word", 2, "", `"word"`},
	} {
		var stdout, stderr bytes.Buffer
		code := run(context.Background(), strings.Fields(tc.args), &stdout, &stderr)
		if code != tc.code || !strings.Contains(stdout.String(), tc.stdout) || !strings.Contains(stderr.String(), tc.stderr) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q; want %d, %q, %q",
				tc.args, code, stdout.String(), stderr.String(), tc.code, tc.stdout, tc.stderr)
		}
	}
}

func TestQuickRunWritesResults(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--quick", "--out", dir, "--only", "^(wheel.Wheel|time.AfterFunc)/"}
	var stderr bytes.Buffer
	if code := run(t.Context(), args, os.Stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d, want 0: %s", code, stderr.String())
	}
	tables, err := os.ReadFile(filepath.Join(dir, "timers.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range views {
		if !strings.Contains(string(tables), "## "+v.title+"\n") {
			t.Errorf("timers.md lacks the table %q", v.title)
		}
	}
	if strings.Contains(string(tables), "failed") {
		t.Errorf("something failed:\n%s", tables)
	}
	if code := run(t.Context(), []string{"--render", "--out", dir}, os.Stdout, &stderr); code != 0 {
		t.Fatalf("--render: exit code %d, want 0: %s", code, stderr.String())
	}
	again, err := os.ReadFile(filepath.Join(dir, "timers.md"))
	if err != nil || !bytes.Equal(tables, again) {
		t.Errorf("--render makes other tables than the run itself (%v)", err)
	}
}

func TestInterruptEndsAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	dir := t.TempDir()
	var stderr bytes.Buffer
	began := time.Now()
	if code := run(ctx, []string{"--only", "AfterFunc/hold", "--out", dir}, os.Stdout, &stderr); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("took %v to end after an interrupt at 1 s", took)
	}
	if !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("stderr is %q, want a word about the interrupt", stderr.String())
	}
}
