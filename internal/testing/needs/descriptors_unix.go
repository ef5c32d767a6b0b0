//go:build unix

package needs

import (
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sync/semaphore"
)

// spare is the number of descriptors for tests that run at the same time and ask for none.
const spare = 300

// free are the descriptors that tests may ask for.
var free = sync.OnceValues(func() (*semaphore.Weighted, int) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		panic(err)
	}
	n := max(int(min(uint64(limit.Cur), 1<<30))-spare, 0) // Go has raised it to the hard limit
	return semaphore.NewWeighted(int64(n)), n
})

// Descriptors waits until other tests of this process have left n descriptors, and keeps them for
// this one until its end. It skips the test if the process may not have so many. A test that calls
// it twice may wait for ever.
func Descriptors(t testing.TB, n int) {
	t.Helper()
	take(t, n, n)
}

// Connections is Descriptors for n connections that need the given number of descriptors each. If
// there are not so many, it returns a smaller number of connections, at least the given one.
func Connections(t testing.TB, n, least, each int) int {
	t.Helper()
	if _, have := free(); have < n*each && have >= least*each {
		t.Logf("needs %d descriptors, have %d: %d connections instead of %d", n*each+spare, have+spare, have/each, n)
		n = have / each
	}
	take(t, n*each, least*each)
	return n
}

func take(t testing.TB, n, least int) {
	t.Helper()
	tests, have := free()
	if have < n {
		t.Skipf("needs %d descriptors, have %d", least+spare, have+spare)
	}
	if err := tests.Acquire(t.Context(), int64(n)); err != nil {
		t.Fatalf("waiting for %d descriptors: %v", n, err)
	}
	t.Cleanup(func() { tests.Release(int64(n)) })
}

// Many reports whether this process may have thousands of descriptors.
func Many() bool {
	_, have := free()
	return have >= 4000
}

// Parallel returns how many tests may run at the same time: n, or four if this process may have few
// descriptors, or is slow because of the race detector.
func Parallel(n int) string {
	if !Many() || RaceDetector {
		n = min(n, 4)
	}
	return strconv.Itoa(n)
}
