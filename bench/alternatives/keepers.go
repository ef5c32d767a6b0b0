package main

import (
	"container/heap"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/wheel"
)

const (
	tick     = 100 * time.Millisecond // of the wheel, and of the coarse clock
	scanning = time.Second            // between two scans, or two checks of a heap
)

// A keeper records for each of n connections, named by index, when its peer was heard last. It
// calls expire once for each connection that has been silent for the timeout. The server has a
// table of its connections by index.
//
// One goroutine, which represents an event loop, calls open, touch and step.
type keeper interface {
	open(i int)  // begins, as if the peer had just been heard
	touch(i int) // the peer was heard
	step()       // called each tick; does the work of the loop
	close()      // ends all goroutines
}

type keeperConfig struct {
	n       int
	timeout time.Duration
	expire  func(i int) // on any goroutine
}

type keeperKind struct {
	name string
	note string
	new  func(keeperConfig) (keeper, error)
}

func keeperKinds() []keeperKind {
	return []keeperKind{
		{"wheel.Wheel", "as `idle` uses it: a message stores the tick, the wheel checks it when the slot comes up", newWheelKeeper},
		{"time.AfterFunc, Reset", "one per connection, reset by each message", newAfterFuncReset},
		{"time.AfterFunc, lazy", "a message stores the tick, the timer checks it when it fires", newAfterFuncLazy},
		{"heap, Fix", "`container/heap` behind a lock, fixed by each message, checked once a second as in `OnTick`", newHeapFix},
		{"heap, lazy", "a message stores the tick, the heap checks it when the entry is on top", newHeapLazy},
		{"scan of a slice", "a message stores the tick, a scan of all once a second", newScanSlice},
		{"scan of a map", "the same with a map of pointers behind a lock", newScanMap},
		{harness, "no keeper: the cost of the loop that makes the heartbeats", newNothing},
	}
}

const harness = "none (harness)"

func newKeeper(name string, c keeperConfig) (keeper, error) {
	for _, k := range keeperKinds() {
		if k.name == name {
			return k.new(c)
		}
	}
	return nil, fmt.Errorf("no subject %q", name)
}

// clock is a coarse clock: a goroutine moves it each tick, and reading it is one load.
type clock struct {
	origin time.Time
	ticks  atomic.Uint32 // since the origin, at least 1
	quit   chan struct{}
	done   sync.WaitGroup
}

func newClock() *clock {
	c := &clock{origin: time.Now(), quit: make(chan struct{})}
	c.ticks.Store(1)
	c.done.Go(func() { every(tick, c.quit, c.move) })
	return c
}

func (c *clock) move() { c.ticks.Store(uint32(time.Since(c.origin)/tick) + 1) }

func (c *clock) close() {
	close(c.quit)
	c.done.Wait()
}

// since returns the least age of a stamp: a stamp may be a tick older than its event.
func (c *clock) since(stamp uint32) time.Duration {
	return time.Duration(c.ticks.Load()-stamp)*tick - tick
}

// every calls do in each interval until quit is closed.
func every(interval time.Duration, quit <-chan struct{}, do func()) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			do()
		case <-quit:
			return
		}
	}
}

// stamps are the ticks at which connections were heard last.
type stamps []atomic.Uint32

// --- the wheel

type wheelKeeper struct {
	keeperConfig
	clock *clock
	heard stamps
	wheel *wheel.Wheel[uint32]
}

func newWheelKeeper(c keeperConfig) (keeper, error) {
	w, err := wheel.New[uint32](tick)
	if err != nil {
		return nil, err
	}
	return &wheelKeeper{keeperConfig: c, clock: newClock(), heard: make(stamps, c.n), wheel: w}, nil
}

// due returns the instant of the next check of a connection: a stamp may be a tick older than its
// event.
func (k *wheelKeeper) due(stamp uint32) time.Duration { return time.Duration(stamp)*tick + k.timeout }

func (k *wheelKeeper) now() time.Duration { return time.Duration(k.clock.ticks.Load()-1) * tick }

func (k *wheelKeeper) open(i int) {
	k.touch(i)
	k.wheel.Schedule(k.due(k.heard[i].Load()), uint32(i))
}

func (k *wheelKeeper) touch(i int) { k.heard[i].Store(k.clock.ticks.Load()) }
func (k *wheelKeeper) close()      { k.clock.close() }

func (k *wheelKeeper) step() {
	now := k.now()
	if at, ok := k.wheel.NextDue(); !ok || at > now {
		return
	}
	k.wheel.Advance(now, math.MaxInt, func(h wheel.Handle, i uint32) {
		if at := k.due(k.heard[i].Load()); at > now {
			k.wheel.Reschedule(h, at)
			return
		}
		k.expire(int(i))
	})
}

// --- time.AfterFunc

type afterFuncReset struct {
	keeperConfig
	timers []*time.Timer
}

func newAfterFuncReset(c keeperConfig) (keeper, error) {
	return &afterFuncReset{keeperConfig: c, timers: make([]*time.Timer, c.n)}, nil
}

func (k *afterFuncReset) open(i int)  { k.timers[i] = time.AfterFunc(k.timeout, func() { k.expire(i) }) }
func (k *afterFuncReset) touch(i int) { k.timers[i].Reset(k.timeout) }
func (k *afterFuncReset) step()       {}

func (k *afterFuncReset) close() {
	for _, t := range k.timers {
		t.Stop()
	}
}

type afterFuncLazy struct {
	keeperConfig
	clock  *clock
	heard  stamps
	timers []*time.Timer
}

func newAfterFuncLazy(c keeperConfig) (keeper, error) {
	return &afterFuncLazy{
		keeperConfig: c, clock: newClock(), heard: make(stamps, c.n), timers: make([]*time.Timer, c.n),
	}, nil
}

func (k *afterFuncLazy) open(i int) {
	k.touch(i)
	k.timers[i] = time.AfterFunc(time.Hour, func() { k.look(i) })
	k.timers[i].Reset(k.timeout) // only after the timer is in the table
}

func (k *afterFuncLazy) look(i int) {
	if left := k.timeout - k.clock.since(k.heard[i].Load()); left > 0 {
		k.timers[i].Reset(left)
		return
	}
	k.expire(i)
}

func (k *afterFuncLazy) touch(i int) { k.heard[i].Store(k.clock.ticks.Load()) }
func (k *afterFuncLazy) step()       {}

func (k *afterFuncLazy) close() {
	for _, t := range k.timers {
		t.Stop()
	}
	k.clock.close()
}

// --- container/heap

type heapEntry struct {
	deadline time.Duration // since the origin
	place    int32         // -1 when in no heap
	i        uint32
}

// deadlineHeap implements [heap.Interface], the earliest deadline first.
type deadlineHeap []*heapEntry

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].deadline < h[j].deadline }

func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = int32(i), int32(j)
}

func (h *deadlineHeap) Push(x any) {
	e := x.(*heapEntry)
	e.place = int32(len(*h))
	*h = append(*h, e)
}

func (h *deadlineHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.place = -1
	return e
}

type heapFix struct {
	keeperConfig
	origin  time.Time
	entries []*heapEntry
	quit    chan struct{}
	done    sync.WaitGroup

	mu   sync.Mutex
	heap deadlineHeap
}

func newHeapFix(c keeperConfig) (keeper, error) {
	k := &heapFix{keeperConfig: c, origin: time.Now(), entries: make([]*heapEntry, c.n), quit: make(chan struct{})}
	k.done.Go(func() { every(scanning, k.quit, k.look) })
	return k, nil
}

func (k *heapFix) open(i int) {
	e := &heapEntry{deadline: time.Since(k.origin) + k.timeout, i: uint32(i)}
	k.entries[i] = e
	k.mu.Lock()
	heap.Push(&k.heap, e)
	k.mu.Unlock()
}

func (k *heapFix) touch(i int) {
	e := k.entries[i]
	deadline := time.Since(k.origin) + k.timeout
	k.mu.Lock()
	if e.place >= 0 {
		e.deadline = deadline
		heap.Fix(&k.heap, int(e.place))
	}
	k.mu.Unlock()
}

func (k *heapFix) look() {
	now := time.Since(k.origin)
	for {
		k.mu.Lock()
		if len(k.heap) == 0 || k.heap[0].deadline > now {
			k.mu.Unlock()
			return
		}
		e := heap.Pop(&k.heap).(*heapEntry)
		k.mu.Unlock()
		k.expire(int(e.i))
	}
}

func (k *heapFix) step() {}

func (k *heapFix) close() {
	close(k.quit)
	k.done.Wait()
}

type heapLazy struct {
	keeperConfig
	clock *clock
	heard stamps
	quit  chan struct{}
	done  sync.WaitGroup

	mu   sync.Mutex
	heap lazyHeap
}

type lazyEntry struct {
	at time.Duration // instant of the next check
	i  uint32
}

// lazyHeap implements [heap.Interface] with values, since entries are never searched.
type lazyHeap []lazyEntry

func (h lazyHeap) Len() int           { return len(h) }
func (h lazyHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h lazyHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *lazyHeap) Push(x any)        { *h = append(*h, x.(lazyEntry)) }

func (h *lazyHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	*h = (*h)[:last]
	return e
}

func newHeapLazy(c keeperConfig) (keeper, error) {
	k := &heapLazy{keeperConfig: c, clock: newClock(), heard: make(stamps, c.n), quit: make(chan struct{})}
	k.done.Go(func() { every(scanning, k.quit, k.look) })
	return k, nil
}

func (k *heapLazy) open(i int) {
	k.touch(i)
	k.mu.Lock()
	heap.Push(&k.heap, lazyEntry{at: time.Since(k.clock.origin) + k.timeout, i: uint32(i)})
	k.mu.Unlock()
}

func (k *heapLazy) touch(i int) { k.heard[i].Store(k.clock.ticks.Load()) }

func (k *heapLazy) look() {
	now := time.Since(k.clock.origin)
	for {
		k.mu.Lock()
		if len(k.heap) == 0 || k.heap[0].at > now {
			k.mu.Unlock()
			return
		}
		i := k.heap[0].i
		left := k.timeout - k.clock.since(k.heard[i].Load())
		if left > 0 {
			k.heap[0].at = now + left
			heap.Fix(&k.heap, 0)
			k.mu.Unlock()
			continue
		}
		heap.Pop(&k.heap)
		k.mu.Unlock()
		k.expire(int(i))
	}
}

func (k *heapLazy) step() {}

func (k *heapLazy) close() {
	close(k.quit)
	k.done.Wait()
	k.clock.close()
}

// --- scans

type scanSlice struct {
	keeperConfig
	clock *clock
	heard stamps // 0: not open
	quit  chan struct{}
	done  sync.WaitGroup
}

func newScanSlice(c keeperConfig) (keeper, error) {
	k := &scanSlice{keeperConfig: c, clock: newClock(), heard: make(stamps, c.n), quit: make(chan struct{})}
	k.done.Go(func() { every(scanning, k.quit, k.look) })
	return k, nil
}

func (k *scanSlice) open(i int)  { k.touch(i) }
func (k *scanSlice) touch(i int) { k.heard[i].Store(k.clock.ticks.Load()) }

func (k *scanSlice) look() {
	for i := range k.heard {
		if stamp := k.heard[i].Load(); stamp != 0 && k.clock.since(stamp) >= k.timeout {
			if k.heard[i].CompareAndSwap(stamp, 0) {
				k.expire(i)
			}
		}
	}
}

func (k *scanSlice) step() {}

func (k *scanSlice) close() {
	close(k.quit)
	k.done.Wait()
	k.clock.close()
}

// A session is the Context of a connection in a server.
type session struct {
	heard atomic.Uint32
	i     uint32
}

type scanMap struct {
	keeperConfig
	clock    *clock
	sessions []*session // stands for the Context of each connection
	quit     chan struct{}
	done     sync.WaitGroup

	mu    sync.Mutex
	conns map[*session]struct{}
}

func newScanMap(c keeperConfig) (keeper, error) {
	k := &scanMap{
		keeperConfig: c, clock: newClock(), sessions: make([]*session, c.n), quit: make(chan struct{}),
		conns: map[*session]struct{}{},
	}
	k.done.Go(func() { every(scanning, k.quit, k.look) })
	return k, nil
}

func (k *scanMap) open(i int) {
	s := &session{i: uint32(i)}
	k.sessions[i] = s
	k.touch(i)
	k.mu.Lock()
	k.conns[s] = struct{}{}
	k.mu.Unlock()
}

func (k *scanMap) touch(i int) { k.sessions[i].heard.Store(k.clock.ticks.Load()) }

func (k *scanMap) look() {
	var due []*session
	k.mu.Lock()
	for s := range k.conns {
		if k.clock.since(s.heard.Load()) >= k.timeout {
			due = append(due, s)
			delete(k.conns, s)
		}
	}
	k.mu.Unlock()
	for _, s := range due {
		k.expire(int(s.i))
	}
}

func (k *scanMap) step() {}

func (k *scanMap) close() {
	close(k.quit)
	k.done.Wait()
	k.clock.close()
}

// --- nothing

type nothing struct{}

func newNothing(keeperConfig) (keeper, error) { return nothing{}, nil }

func (nothing) open(int)  {}
func (nothing) touch(int) {}
func (nothing) step()     {}
func (nothing) close()    {}
