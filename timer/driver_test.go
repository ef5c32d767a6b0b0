package timer

import (
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestATimerHasAGoroutineOnlyWhileSomethingIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, Config{})
		driving := func() bool {
			synctest.Wait()
			timer.core.mu.Lock()
			defer timer.core.mu.Unlock()
			return timer.core.driving
		}
		require.False(t, driving())
		add(t, timer, time.Second, nothing)
		add(t, timer, time.Hour, nothing)
		require.True(t, driving())
		time.Sleep(time.Minute)
		require.True(t, driving())
		time.Sleep(time.Hour)
		require.False(t, driving())
		add(t, timer, time.Second, nothing)
		require.True(t, driving())
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 3, timer.Stats().Runs)
	})
}

func TestADriverDoesNotEndIfATimeoutIsFiledMeanwhile(t *testing.T) {
	timer := newTestTimer(t, Config{})
	c := timer.core
	c.driving = true // by this test
	require.True(t, c.leave())
	c.driving = true
	add(t, timer, time.Hour, nothing)
	require.False(t, c.leave())
	require.True(t, c.driving)
	c.driving = false
}

// TestDriverAgainstModel lets the goroutine of a Timer run random tasks that panic, call
// runtime.Goexit and change each other.
func TestDriverAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	for round := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			cfg := Config{}
			if round%2 == 1 {
				cfg.Executor = spawn
			}
			driveAtRandom(t, newTestTimer(t, cfg), rand.New(rand.NewPCG(seed, round)))
		})
		require.False(t, t.Failed(), "seed %d, round %d", seed, round)
	}
}

func driveAtRandom(t *testing.T, timer *Timer, rng *rand.Rand) {
	var mu sync.Mutex // guards the variables and is held except while time passes
	mu.Lock()
	due := map[int]time.Time{}
	timeouts := map[int]*Timeout{}
	some := func() int {
		ids := slices.Sorted(maps.Keys(due))
		return ids[rng.IntN(len(ids))]
	}
	delay := func() time.Duration { return time.Duration(rng.Int64N(1 << (10 + rng.IntN(32)))) }
	next := 0
	move := func(id int) {
		d := delay()
		due[id] = time.Now().Add(d)
		timeouts[id].Reset(d)
	}
	create := func() {
		id, d := next, delay()
		next++
		due[id] = time.Now().Add(d)
		var err error
		timeouts[id], err = timer.AfterFunc(d, func() {
			mu.Lock()
			defer mu.Unlock()
			late := time.Since(due[id])
			_, ok := due[id]
			assert.False(t, !ok || late < 0 || late > timer.core.cfg.Tick, "%d: pending %v, %v late", id, ok, late)
			delete(due, id)
			switch rng.IntN(5) {
			case 0:
				move(id)
			case 1:
				panic("the task")
			case 2:
				runtime.Goexit()
			}
		})
		require.NoError(t, err)
	}
	for range 300 {
		switch rng.IntN(5) {
		case 0, 1:
			create()
		case 2:
			if len(due) > 0 {
				id := some()
				require.True(t, timeouts[id].Stop() || time.Now().After(due[id]))
				delete(due, id)
			}
		case 3:
			if next > 0 {
				move(rng.IntN(next))
			}
		case 4:
			d := delay()
			mu.Unlock()
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			for id, at := range due {
				late := time.Since(at)
				require.LessOrEqual(t, late, timer.core.cfg.Tick, "%d was due %v ago", id, late)
			}
			require.Equal(t, len(due), timer.Pending())
		}
	}
	left, err := timer.Shutdown(t.Context())
	require.NoError(t, err)
	require.Len(t, left, len(due))
	mu.Unlock()
}
