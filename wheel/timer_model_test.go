package wheel

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// timerModel is a model of a Timer: a map of deadlines. Tasks report to it.
type timerModel struct {
	t     *testing.T
	timer *Timer
	rng   *rand.Rand
	began time.Time
	next  int

	mu        sync.Mutex
	pending   map[int]*modelTimeout
	scheduled uint64
	runs      uint64
	cancelled uint64
}

type modelTimeout struct {
	timeout  *Timeout
	deadline time.Duration
	every    time.Duration // of a periodic one
	rate     bool
	left     int // runs until it cancels itself
}

func (m *timerModel) now() time.Duration { return time.Since(m.began) }

// delay returns a random delay of one of several kinds, most of them short.
func (m *timerModel) delay() time.Duration {
	tick := m.timer.cfg.Tick
	switch m.rng.IntN(8) {
	case 0:
		return -time.Duration(m.rng.Int64N(int64(time.Hour)))
	case 1:
		return time.Duration(m.rng.IntN(40)) * tick / 2 // on ticks and between them
	case 2:
		return time.Duration(m.rng.Int64N(int64(90 * 24 * time.Hour)))
	case 3:
		return math.MaxInt64 - time.Duration(m.rng.IntN(2))
	default:
		return time.Duration(m.rng.Int64N(int64(2 * time.Second)))
	}
}

func (m *timerModel) deadline(delay time.Duration) time.Duration {
	return m.now() + min(max(delay, 0), never-m.now())
}

// run is the task of id.
func (m *timerModel) run(id int, timeout *Timeout) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pending[id]
	if !assert.NotNil(m.t, p, "%d runs once, and not after Cancel", id) {
		return
	}
	m.runs++
	late := m.now() - p.deadline
	assert.GreaterOrEqual(m.t, late, time.Duration(0), "%d is early", id)
	assert.LessOrEqual(m.t, late, m.timer.cfg.Tick, "%d is late", id)
	switch p.left--; {
	case p.every == 0:
		delete(m.pending, id)
	case p.left == 0:
		assert.True(m.t, timeout.Cancel(), "from within")
		m.cancelled++
		delete(m.pending, id)
	case p.rate:
		p.deadline += p.every
	default:
		p.deadline = m.now() + p.every
	}
}

func (m *timerModel) add() {
	id, delay, p := m.next, m.delay(), &modelTimeout{left: 1 + m.rng.IntN(5)}
	m.next++
	task := TaskFunc(func(timeout *Timeout) { m.run(id, timeout) })
	m.mu.Lock()
	m.pending[id] = p
	p.deadline = m.deadline(delay)
	var err error
	switch m.rng.IntN(6) {
	case 0:
		p.every, p.rate = m.timer.cfg.Tick+time.Duration(m.rng.IntN(1e9)), true
		p.timeout, err = m.timer.ScheduleAtFixedRate(task, delay, p.every)
	case 1:
		p.every = m.timer.cfg.Tick + time.Duration(m.rng.IntN(1e9))
		p.timeout, err = m.timer.ScheduleWithFixedDelay(task, delay, p.every)
	default:
		p.timeout, err = m.timer.NewTimeout(task, delay)
	}
	m.scheduled++
	m.mu.Unlock()
	require.NoError(m.t, err)
}

// some returns a pending Timeout that is not due, nil if there is none. A due one may have begun to
// run.
func (m *timerModel) some() (int, *modelTimeout) {
	ids := slices.Sorted(maps.Keys(m.pending))
	if len(ids) == 0 {
		return 0, nil
	}
	id := ids[m.rng.IntN(len(ids))]
	if p := m.pending[id]; p.deadline > m.now() {
		return id, p
	}
	return 0, nil
}

func (m *timerModel) cancel() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id, p := m.some(); p != nil {
		require.True(m.t, p.timeout.Cancel(), "a pending one can be cancelled")
		require.False(m.t, p.timeout.Cancel())
		require.False(m.t, p.timeout.Reset(0))
		require.True(m.t, p.timeout.Cancelled())
		m.cancelled++
		delete(m.pending, id)
	}
}

func (m *timerModel) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, p := m.some(); p != nil {
		delay := m.delay()
		p.deadline = m.deadline(delay)
		require.True(m.t, p.timeout.Reset(delay), "a pending one can be reset")
	}
}

// compare compares the Timer with the model. No operation may be running.
func (m *timerModel) compare() {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.timer.Stats()
	require.Equal(m.t, []uint64{uint64(len(m.pending)), m.scheduled, m.runs, m.cancelled},
		[]uint64{uint64(s.Pending), s.Scheduled, s.Expired, s.Cancelled}, "pending, scheduled, expired, cancelled")
	for id, p := range m.pending {
		if m.now()-p.deadline > m.timer.cfg.Tick {
			m.t.Fatalf("%d was due %v ago", id, m.now()-p.deadline)
		}
	}
	for _, s := range m.timer.shards {
		s.mu.Lock()
		checkTimeouts(m.t, &s.wheel)
		s.mu.Unlock()
	}
}

// stop compares the result of Stop with the model.
func (m *timerModel) stop() {
	synctest.Wait() // until the due tasks have run
	m.mu.Lock()
	want := map[*Timeout]bool{}
	for _, p := range m.pending {
		want[p.timeout] = true
	}
	m.mu.Unlock()
	left, err := m.timer.Stop()
	require.NoError(m.t, err)
	require.Len(m.t, left, len(want))
	for _, timeout := range left {
		require.True(m.t, want[timeout], "it was pending, and is returned once")
		delete(want, timeout)
	}
	require.Zero(m.t, m.timer.Pending())
}

func TestTimerAgainstModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for round := range 200 {
		synctest.Test(t, func(t *testing.T) {
			cfg := TimerConfig{Tick: 10 * time.Millisecond, Slots: 16}
			if round%2 == 1 {
				pool, err := NewPool(4, 1<<10)
				require.NoError(t, err)
				defer pool.Close()
				cfg.Executor = pool.Execute
			}
			m := &timerModel{t: t, timer: newTestTimer(t, cfg), rng: rand.New(rand.NewPCG(seed, uint64(round))),
				began: time.Now(), pending: map[int]*modelTimeout{}}
			for range 200 {
				switch m.rng.IntN(5) {
				case 0, 1:
					m.add()
				case 2:
					m.cancel()
				case 3:
					m.reset()
				case 4:
					time.Sleep(min(m.delay(), 24*time.Hour))
					synctest.Wait()
					m.compare()
				}
			}
			m.stop()
		})
		if t.Failed() {
			t.Fatalf("seed %d, round %d", seed, round)
		}
	}
}

// checkTimeouts walks the wheel of a shard and fails if a Timeout is not at its place, or lies in a
// slot that comes up too late.
func checkTimeouts(t testing.TB, w *timeouts) {
	t.Helper()
	filed := walkSlots(t, &w.hierarchy, &w.blocks)
	held := 0
	for _, piece := range w.blocks.pieces {
		for _, b := range piece {
			for _, timeout := range b.ids {
				if timeout != nil {
					held++
				}
			}
		}
	}
	if held != len(filed) {
		t.Fatalf("the blocks hold %d Timeouts, %d are in slots", held, len(filed))
	}
	for timeout, tick := range filed {
		p := timeout.place
		if w.blocks.at(p.block).ids[p.index()] != timeout {
			t.Fatalf("a Timeout is not at its place %+v", p)
		}
		if l := w.levelAt(p.level()); p.slot() != l.slot(tick) {
			t.Fatalf("a Timeout in slot %d of level %d says that it is in %d", l.slot(tick), l.index, p.slot())
		}
		if due := w.tickOf(int64(deadlineOf(timeout.word.Load()))); tick > due {
			t.Fatalf("a Timeout comes up at tick %d, it is due at %d", tick, due)
		}
	}
}
