package timer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An event is one call, or one end of a run, of a history. It has happened at one instant between
// its two stamps.
type event struct {
	from, to int64
	name     string
	// apply changes the state and reports whether the result of the call agrees with it.
	apply func(*history) bool
}

// A history is the state of a Timer with two Timeouts, which run once. Only the first is ever due.
type history struct {
	armed   [2]bool
	due     bool // the first one may begin
	running bool // the first one
	closed  bool
}

func stopEvent(got bool) func(*history) bool {
	return func(h *history) bool {
		want := h.armed[0] && !h.running
		h.armed[0] = false
		return got == want
	}
}

func resetEvent(d time.Duration, got bool) func(*history) bool {
	return func(h *history) bool {
		want := h.armed[0] && !h.running
		if !h.closed {
			h.armed[0], h.due = true, d == 0
		}
		return got == want
	}
}

func addEvent(err error) func(*history) bool {
	return func(h *history) bool {
		h.armed[1] = !h.closed
		return errors.Is(err, ErrShutdown) == h.closed
	}
}

func shutdownEvent(left [2]bool) func(*history) bool {
	return func(h *history) bool {
		ok := left == h.armed && !h.closed
		h.armed, h.closed = [2]bool{}, true
		return ok
	}
}

func beginEvent(h *history) bool {
	ok := h.armed[0] && h.due && !h.running && !h.closed
	h.armed[0], h.running = false, true
	return ok
}

func endEvent(h *history) bool {
	ok := h.running
	h.running = false
	return ok
}

// linearizable reports whether the events can have happened one after the other.
func linearizable(events []event, state history) bool {
	type node struct {
		done  uint32
		state history
	}
	seen := map[node]bool{}
	var search func(node) bool
	search = func(n node) bool {
		if n.done == 1<<len(events)-1 {
			return true
		}
		if seen[n] {
			return false
		}
		seen[n] = true
		end := int64(1) << 62 // no event begins after another that is not done has ended
		for i, e := range events {
			if n.done&(1<<i) == 0 {
				end = min(end, e.to)
			}
		}
		for i, e := range events {
			if n.done&(1<<i) != 0 || e.from > end {
				continue
			}
			next := n
			next.done |= 1 << i
			if e.apply(&next.state) && search(next) {
				return true
			}
		}
		return false
	}
	return search(node{state: state})
}

// TestLinearizable calls AfterFunc, Stop, Reset and Shutdown on several goroutines.
func TestLinearizable(t *testing.T) {
	runs, rounds := 0, 800
	if testing.Short() {
		rounds = 200
	}
	for round := range rounds {
		executor := []func(func()) error{nil, spawn, func(run func()) error {
			if rand.IntN(2) == 0 {
				return errors.New("full")
			}
			return spawn(run)
		}}[round%3]
		timer, err := New(Config{Tick: 20 * time.Microsecond, Executor: executor, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)

		var clock atomic.Int64
		var mu sync.Mutex
		var events []event
		record := func(name string, call func() func(*history) bool) {
			from := clock.Add(1)
			apply := call()
			to := clock.Add(1)
			mu.Lock()
			defer mu.Unlock()
			events = append(events, event{from, to, name, apply})
		}
		first := add(t, timer, time.Hour, func() {
			begun := clock.Add(1)
			for range rand.IntN(200) {
				runtime.Gosched()
			}
			mu.Lock()
			defer mu.Unlock()
			runs++
			events = append(events, event{0, begun, "begin", beginEvent}, event{clock.Add(1), 1 << 62, "end", endEvent})
		})
		var second *Timeout
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for range 3 {
					if time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond); rand.IntN(3) == 0 {
						record("Stop", func() func(*history) bool { return stopEvent(first.Stop()) })
						continue
					}
					d := time.Duration(rand.IntN(3)/2) * time.Hour
					record(fmt.Sprint("Reset ", d), func() func(*history) bool { return resetEvent(d, first.Reset(d)) })
				}
			})
		}
		all.Go(func() {
			time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
			record("AfterFunc", func() func(*history) bool {
				var err error
				second, err = timer.AfterFunc(time.Hour, nothing)
				return addEvent(err)
			})
		})
		var left []*Timeout
		shut := event{name: "Shutdown", to: 1 << 62}
		all.Go(func() {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
			shut.from = clock.Add(1)
			left, err = timer.Shutdown(context.Background())
			assert.NoError(t, err)
			shut.to = clock.Add(1)
			mu.Lock()
			defer mu.Unlock()
			for _, e := range events {
				if e.name == "begin" && e.to > shut.to {
					t.Error("a run after Shutdown")
				}
			}
		})
		all.Wait()
		shut.apply = shutdownEvent([2]bool{slices.Contains(left, first), second != nil && slices.Contains(left, second)})
		mu.Lock()
		events = append(events, shut)
		if !linearizable(events, history{armed: [2]bool{true, false}}) {
			slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.from, b.from) })
			for _, e := range events {
				t.Logf("%d to %d: %s", e.from, e.to, e.name)
			}
			t.Fatalf("round %d is not linearizable", round)
		}
		mu.Unlock()
	}
	require.Positive(t, runs)
	t.Logf("%d runs", runs)
}

// TestLinearizableFindsFaults checks the search.
func TestLinearizableFindsFaults(t *testing.T) {
	armed := history{armed: [2]bool{true, false}}
	stop := func(from, to int64, got bool) event { return event{from, to, "Stop", stopEvent(got)} }
	require.True(t, linearizable([]event{stop(1, 4, false), stop(2, 3, true)}, armed))
	require.False(t, linearizable([]event{stop(1, 4, true), stop(2, 3, true)}, armed))
	require.False(t, linearizable([]event{stop(1, 2, false), stop(3, 4, true)}, armed))
	require.False(t, linearizable([]event{stop(1, 2, true), {0, 9, "begin", beginEvent}}, armed), "never due")
	reset := event{1, 2, "Reset", resetEvent(0, true)}
	require.True(t, linearizable([]event{reset, {0, 9, "begin", beginEvent}, stop(5, 6, false)}, armed))
	require.False(t, linearizable([]event{reset, stop(3, 4, true), {5, 9, "begin", beginEvent}}, armed))
}
