// Package fair lets a test that compares times fail only on a machine that gave it processor time.
package fair

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	attempts = 4
	tooLong  = time.Minute // no further attempt begins after this time
)

// Late is the delay of the test's process from which its attempt proves nothing. Other processes of
// the test may be later.
const Late = 15 * time.Millisecond

// Try calls test until it passes. If it fails although the process was never late, t fails. If the
// process was late at each of four attempts, or for a minute, Try skips t.
//
// The TB of an attempt has no subtests. FailNow and Skip must be called in the goroutine of test.
func Try(t *testing.T, test func(t testing.TB)) {
	t.Helper()
	try(t, test, MeasureDelay)
}

// TryParallel is Try in a test that runs in parallel with others.
func TryParallel(t *testing.T, test func(t testing.TB)) {
	t.Helper()
	t.Parallel()
	Try(t, test)
}

// Busy ends an attempt that found out by itself that the machine was too busy for it.
func Busy(t testing.TB, format string, args ...any) {
	t.Helper()
	Excuse(t, format, args...)
	t.FailNow()
}

// Excuse says that the machine was too busy, so that a failure of this attempt proves nothing. Safe
// for concurrent use.
func Excuse(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Logf(format, args...)
	if a, ok := t.(*attempt); ok {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.busy = true
	}
}

// Run is Try as a subtest of t with this name.
func Run(t *testing.T, name string, test func(t testing.TB)) {
	t.Run(name, func(t *testing.T) { Try(t, test) })
}

// RunParallel is TryParallel as a subtest of t with this name.
func RunParallel(t *testing.T, name string, test func(t testing.TB)) {
	t.Run(name, func(t *testing.T) { TryParallel(t, test) })
}

func try(t testing.TB, test func(t testing.TB), measure func() func() time.Duration) {
	t.Helper()
	began := time.Now()
	for n := 1; ; n++ {
		stop := measure()
		a := &attempt{TB: t}
		a.run(test)
		late := stop()
		if t.Skipped() {
			t.SkipNow()
		}
		switch text := strings.Join(a.texts, "\n"); {
		case !a.failed:
			t.Logf("%s", text)
			return
		case late < Late && !a.busy:
			t.Fatalf("%s\nThe process was never late by more than %v.", text, late)
		case n == attempts || time.Since(began) >= tooLong:
			t.Skipf("the machine is too busy to compare times: attempt %d, the process was late by %v:\n%s", n, late, text)
		default:
			t.Logf("attempt %d: the process was late by %v:\n%s", n, late, text)
		}
	}
}

// An attempt is a test that may fail and be tried again. Safe for concurrent use, as its TB is.
type attempt struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	busy     bool
	texts    []string
	cleanups []func()
}

// run calls the test, and then what it has given to Cleanup, in a goroutine that FailNow can end.
func (a *attempt) run(test func(t testing.TB)) {
	var running sync.WaitGroup
	running.Go(func() {
		defer a.cleanUp()
		test(a)
	})
	running.Wait()
}

func (a *attempt) cleanUp() {
	for _, f := range a.cleanups {
		defer f() // the last one runs first, each of them also after one that ends the goroutine
	}
	a.cleanups = nil
}

func (a *attempt) Cleanup(f func()) { a.cleanups = append(a.cleanups, f) }

func (a *attempt) Log(args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.texts = append(a.texts, strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}

func (a *attempt) Fail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = true
}

func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

func (a *attempt) FailNow()                          { a.Fail(); runtime.Goexit() }
func (a *attempt) Logf(format string, args ...any)   { a.Log(fmt.Sprintf(format, args...)) }
func (a *attempt) Error(args ...any)                 { a.Log(args...); a.Fail() }
func (a *attempt) Errorf(format string, args ...any) { a.Logf(format, args...); a.Fail() }
func (a *attempt) Fatal(args ...any)                 { a.Log(args...); a.FailNow() }
func (a *attempt) Fatalf(format string, args ...any) { a.Logf(format, args...); a.FailNow() }

// MeasureDelay measures how late this process wakes up. The function that it returns ends the
// measurement and returns the largest delay.
func MeasureDelay() (stop func() time.Duration) {
	const pause = 2 * time.Millisecond
	end, largest := make(chan struct{}), make(chan time.Duration)
	before, late := time.Now(), time.Duration(0) // the goroutine may begin late as well
	go func() {
		for running := true; running; before = time.Now() {
			select {
			case <-end:
				running = false
			case <-time.After(pause):
			}
			late = max(late, time.Since(before)-pause)
		}
		largest <- late
	}()
	return func() time.Duration {
		close(end)
		return <-largest
	}
}
