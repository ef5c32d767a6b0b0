package timer

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

const modelTick = 10 * time.Millisecond

// A choice makes the decisions of a model: at random, or from the bytes of a fuzzer.
type choice struct {
	rng   *rand.Rand
	bytes []byte
}

// of returns a number below n.
func (c *choice) of(n int) int {
	if c.rng != nil {
		return int(c.rng.Uint32N(uint32(n)))
	}
	if len(c.bytes) < 2 {
		c.bytes = nil
		return 0
	}
	v := int(binary.LittleEndian.Uint16(c.bytes))
	c.bytes = c.bytes[2:]
	return v % n
}

func (c *choice) in(chances int) bool { return c.of(chances) == chances-1 }

// A model is a simple description of a Timer, and drives one in steps: it lets time elapse by
// moving the origin of the Timer, and calls pass where the driver would. It runs in a bubble, in
// which the clock stands still. It knows nothing of wheels, shards and locks.
type model struct {
	t      testing.TB
	choose choice
	core   *core
	timer  *Timer
	items  []*modelItem
	queue  []func() // accepted by the executor

	refusals [2][]modelRefusal // by the executor, and by the one for slow tasks
	began    time.Duration     // when an executor has called the function that runs Timeouts, or -1
	slow     int               // 1 if that is the one for slow tasks
	want     Stats
	closed   bool

	passAt   time.Duration // the time that the last pass has seen
	slowRuns []slowRun
	depth    int // of calls of tasks and executors
	inline   bool
	goexit   bool          // this step runs on a goroutine of its own
	longest  time.Duration // time that a task takes
}

// A slowRun is the end of a run that took longer than SlowAfter.
type slowRun struct {
	literal int
	at      time.Duration
}

// A modelRefusal says that an item was refused, and is tried again later.
type modelRefusal struct {
	item *modelItem
	at   time.Duration
}

// A modelItem is what the model knows about a Timeout.
type modelItem struct {
	timeout *Timeout
	literal int // the task is a closure of this function literal
	period  time.Duration
	due     time.Duration // of the next run
	set     time.Duration // when due was set, or the next attempt after a refusal
	retry   time.Duration // earliest time of the next attempt
	armed   bool
	moved   bool
	running bool
	direct  bool // the last call by an executor has run it first
	handing bool // the executor is being asked
	queued  bool // in the queue
}

func newModel(t testing.TB, choose choice) *model {
	m := &model{t: t, choose: choose, began: -1}
	cfg := Config{Tick: modelTick, Logger: slog.New(slog.DiscardHandler)}
	if choose.in(2) {
		cfg.SkipAfter = time.Second
	} else {
		m.longest = []time.Duration{0, 2 * time.Second, 50 * time.Millisecond}[choose.of(3)]
	}
	if choose.in(2) {
		cfg.MaxPending = 1 + choose.of(6)
	}
	switch choose.of(3) {
	case 1:
		m.inline = true
		fallthrough
	case 2:
		cfg.Executor = func(run func()) error { return m.execute(run, 0) }
	}
	if choose.in(2) {
		cfg.SlowAfter = modelTick
		cfg.SlowExecutor = func(run func()) error { return m.execute(run, 1) }
	}
	timer, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.timer, m.core = timer, timer.core
	m.core.driving = true // by the model
	return m
}

func (m *model) now() time.Duration { return m.core.now() }

func (m *model) elapse(by time.Duration) { m.core.origin = m.core.origin.Add(-by) }

func (m *model) check(ok bool, format string, args ...any) {
	if !ok {
		m.t.Helper()
		m.t.Fatalf(format, args...)
	}
}

// latest is the time at which a pass has to find an item.
func (i *modelItem) latest() time.Duration {
	ceil := func(d time.Duration) time.Duration { return (d + modelTick - 1) / modelTick * modelTick }
	return max(ceil(max(i.due, i.retry)), i.set/modelTick*modelTick+modelTick)
}

func (i *modelItem) filed() bool { return i.armed && !i.running && !i.queued && !i.handing }

func (m *model) arm(i *modelItem) {
	i.armed = true
	m.want.Pending++
	m.want.Scheduled++
}

func (m *model) disarm(i *modelItem) {
	i.armed = false
	m.want.Pending--
}

func (m *model) full() bool {
	limit := m.core.cfg.MaxPending
	return limit > 0 && m.want.Pending >= limit
}

func (m *model) delay() time.Duration {
	switch m.choose.of(8) {
	case 0:
		return -time.Second
	case 1:
		return time.Duration(m.choose.of(20)) * modelTick / 2
	case 2:
		return time.Duration(m.choose.of(1000)) * time.Minute
	case 3:
		return time.Duration(m.choose.of(3)) + time.Duration(m.choose.of(2))*(modelTick-1)
	default:
		return time.Duration(m.choose.of(3000)) * time.Millisecond
	}
}

func (m *model) add() {
	if len(m.items) >= 12 {
		m.reset(m.items[m.choose.of(len(m.items))])
		return
	}
	i := &modelItem{set: m.now(), due: m.now(), literal: m.choose.of(2)}
	var err error
	full, task := m.full(), [2]func(){func() { m.run(i) }, func() { m.run(i) }}[i.literal]
	switch d := m.delay(); m.choose.of(4) {
	case 0:
		i.period = max(d, modelTick)
		i.due += i.period
		i.timeout, err = m.timer.Every(i.period, task)
	case 1:
		i.period = -max(d, modelTick)
		i.due -= i.period
		i.timeout, err = m.timer.EveryAfter(-i.period, task)
	default:
		i.due += max(d, 0)
		i.timeout, err = m.timer.AfterFunc(d, task)
	}
	switch {
	case m.closed:
		m.check(errors.Is(err, ErrShutdown), "after Shutdown: %v", err)
	case full:
		m.check(errors.Is(err, ErrTooManyPending), "at the limit: %v", err)
	default:
		m.check(err == nil, "add: %v", err)
		m.items = append(m.items, i)
		m.arm(i)
	}
}

func (m *model) stop(i *modelItem) {
	got := i.timeout.Stop()
	m.check(got == (i.armed && !i.running), "Stop returned %v, armed %v, running %v", got, i.armed, i.running)
	if i.armed {
		m.disarm(i)
		m.want.Stopped++
	}
}

func (m *model) reset(i *modelItem) {
	d, was, full := m.delay(), i.armed, m.full()
	got := i.timeout.Reset(d)
	m.check(got == (was && !i.running), "Reset returned %v, armed %v, running %v", got, was, i.running)
	if !was {
		if m.closed || full {
			return
		}
		m.arm(i)
	}
	i.due, i.set, i.retry, i.moved = m.now()+max(d, 0), m.now(), 0, true
}

// act does something with the Timer, at the top or within a task or an executor.
func (m *model) act(self *modelItem) {
	switch m.choose.of(6) {
	case 0:
		m.add()
	case 1, 2:
		if len(m.items) > 0 {
			m.stop(m.items[m.choose.of(len(m.items))])
		}
	case 3:
		if len(m.items) > 0 {
			m.reset(m.items[m.choose.of(len(m.items))])
		}
	case 4:
		if self != nil {
			m.reset(self)
		}
	case 5:
		if m.choose.in(64) {
			m.shutdown()
		}
	}
}

// acts reports whether a task or executor does something. With SkipAfter the model sees only at the
// end of a pass which runs were left out.
func (m *model) acts() bool { return m.depth < 3 && m.core.cfg.SkipAfter == 0 }

// run is the task of an item.
func (m *model) run(i *modelItem) {
	late := m.now() - i.due
	m.check(i.armed && !i.running && !m.closed, "a run: armed %v, running %v, closed %v", i.armed, i.running, m.closed)
	m.check(late >= 0, "%v early", -late)
	goesOn := !i.queued && !i.handing && m.began >= 0 // after another one
	if goesOn {
		m.check(m.now()-m.began < retryAfter, "an executor is occupied for %v", m.now()-m.began)
		m.check(m.nextRefused() == i, "a task is not the next refused one")
	}
	i.direct = i.direct || i.queued || i.handing
	driver := !i.queued && !i.handing && !goesOn // runs the task itself
	m.check(!driver || m.core.cfg.Executor == nil && !m.isSlow(i.literal), "a task runs on the driver, literal %d", i.literal)
	if !i.queued && m.core.cfg.SkipAfter > 0 {
		m.check(late <= m.core.cfg.SkipAfter, "a run that is %v late is not skipped", late)
	}
	began := m.now()
	m.want.Runs++
	m.want.MaxLate = max(m.want.MaxLate, late)
	i.running, i.queued, i.handing, i.moved, i.retry = true, false, false, false, 0
	if i.period == 0 {
		m.disarm(i)
	}
	ended := false
	defer func() {
		if m.now()-began > m.core.cfg.SlowAfter {
			m.want.Slow++
			m.slowRuns = append(m.slowRuns, slowRun{i.literal, m.now()})
		}
		if !ended {
			m.want.Panics++
		}
		i.running = false
		if i.armed && !i.moved {
			if ended {
				m.want.Missed += m.renew(i) - 1
			} else {
				m.disarm(i)
			}
		}
		i.set = m.now()
	}()
	if m.depth++; m.acts() {
		for m.choose.in(2) {
			m.act(i)
		}
	}
	m.depth--
	if m.longest > 0 && m.choose.in(2) {
		m.elapse(time.Duration(m.choose.of(1000)) * m.longest / 1000)
	}
	switch m.choose.of(16) {
	case 0:
		panic("the task")
	case 1:
		if m.goexit {
			runtime.Goexit()
		}
	}
	ended = true
}

// renew moves an item to its next run and returns the number of periods.
func (m *model) renew(i *modelItem) uint64 {
	now := m.now()
	if i.period < 0 {
		i.due = now - i.period
		return 1
	}
	behind := now - i.due
	i.due = now + i.period - behind%i.period
	return uint64(behind/i.period) + 1
}

// isSlow reports whether SlowExecutor has to run a task of a function literal.
func (m *model) isSlow(literal int) bool {
	n := 0
	for _, r := range m.slowRuns {
		if r.literal == literal && r.at/time.Minute == m.now()/time.Minute {
			n++
		}
	}
	return m.core.cfg.SlowExecutor != nil && n > 10
}

// execute is the executor, or the one for slow tasks.
func (m *model) execute(run func(), slow int) error {
	// The Timer does not tell which task it is: it is the one in the watchdog.
	timeout := m.core.watchdog.timeout.Load()
	var i *modelItem
	for _, other := range m.items {
		if other.timeout == timeout {
			i = other
		}
	}
	m.check(i != nil && i.armed && !i.running && !i.queued && i.due <= m.now(), "the executor gets one that is not due")
	m.check((slow == 1) == m.isSlow(i.literal), "a task is given to the wrong executor, slow: %d", slow)
	if m.core.cfg.SkipAfter > 0 {
		m.check(m.now()-i.due <= m.core.cfg.SkipAfter, "a late run is not skipped")
	}
	i.handing = true
	if m.depth++; m.acts() && m.choose.in(4) {
		m.act(i)
	}
	m.depth--
	switch kind := m.choose.of(8); {
	case kind < 2: // refused
		i.handing = false
		m.want.Refused++
		i.set = m.now()
		if i.due <= m.now() {
			i.retry = m.now() + retryAfter
			if i.armed && !m.closed {
				m.refuse(i, slow)
			}
		}
		if m.closed {
			m.want.Refused-- // the Timeout is not in the Timer any more
		}
		if kind == 0 {
			panic("the executor")
		}
		return errors.New("full")
	case m.inline:
		m.call(i, run, slow)
		return nil
	}
	i.handing, i.queued = false, true
	m.queue = append(m.queue, func() { m.call(i, run, slow) })
	return nil
}

// refuse notes that an item waits for a run that ends.
func (m *model) refuse(i *modelItem, slow int) {
	list := m.refusals[slow]
	for len(list) > 0 && m.now()-list[0].at >= retryAfter {
		list = list[1:]
	}
	m.refusals[slow] = append(list, modelRefusal{i, m.now()})
}

// nextRefused returns the item with which a call by an executor goes on.
func (m *model) nextRefused() *modelItem {
	for list := &m.refusals[m.slow]; len(*list) > 0; {
		first := (*list)[0]
		*list = (*list)[1:]
		i := first.item
		withDriver := i.timeout.place == submitted
		if m.now()-first.at >= retryAfter || !i.filed() || withDriver || i.due > m.now() {
			continue
		}
		if after := m.core.cfg.SkipAfter; after == 0 || m.now()-i.due <= after {
			return i
		}
		m.skip(i)
	}
	return nil
}

// call calls a function that the executor has accepted.
func (m *model) call(i *modelItem, run func(), slow int) {
	m.began, m.slow, i.direct = m.now(), slow, false
	due := i.armed && i.due <= m.began
	if !due {
		i.queued, i.handing, i.set = false, false, m.began
	}
	returned := false
	defer func() {
		m.check(i.direct == due, "due %v, run %v", due, i.direct)
		if returned && m.now()-m.began < retryAfter {
			left := m.nextRefused()
			m.check(left == nil, "a run has ended and not gone on with %v", left)
		}
		m.began = -1
	}()
	run()
	returned = true
}

// work runs one of the functions in the queue.
func (m *model) work() {
	if len(m.queue) == 0 {
		return
	}
	at := m.choose.of(len(m.queue))
	run := m.queue[at]
	m.queue[at] = m.queue[len(m.queue)-1]
	m.queue = m.queue[:len(m.queue)-1]
	m.apart(run)
}

// apart calls f, sometimes on a goroutine of its own, on which tasks may call runtime.Goexit.
func (m *model) apart(f func()) {
	if m.goexit = m.choose.in(32); !m.goexit {
		f()
		return
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		f()
	}()
	<-done
	m.depth, m.goexit = 0, false
}

// drive does what the driver does after it has slept.
func (m *model) drive() {
	ended := false
	for !ended {
		m.passAt = m.now()
		m.apart(func() {
			m.core.pass()
			ended = true
		})
	}
	for _, i := range m.items {
		if !i.filed() || i.latest() > m.passAt {
			continue
		}
		late := m.passAt - i.due
		m.check(m.core.cfg.SkipAfter > 0 && late > m.core.cfg.SkipAfter, "not run, %v late", late)
		m.skip(i)
	}
}

// skip leaves out a run.
func (m *model) skip(i *modelItem) {
	i.set, i.retry = m.now(), 0
	if i.period == 0 {
		m.want.Missed++
		m.disarm(i)
	} else {
		m.want.Missed += m.renew(i)
	}
}

func (m *model) shutdown() {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	running := m.depth > 0
	left, err := m.timer.Shutdown(done)
	m.check((err != nil) == running, "Shutdown: %v", err)
	got := map[*Timeout]bool{}
	for _, t := range left {
		got[t] = true
	}
	m.check(len(got) == len(left), "one is returned twice")
	for _, i := range m.items {
		want := i.armed && !(i.running && i.period != 0)
		m.check(got[i.timeout] == want, "returned %v, armed %v, running %v", got[i.timeout], i.armed, i.running)
		if i.armed {
			m.disarm(i)
			m.want.Stopped++
		}
	}
	m.closed = true
}

// compare compares the Timer with the model.
func (m *model) compare() {
	got := m.timer.Stats()
	m.check(got == m.want, "got  %+v\nwant %+v", got, m.want)
	inWheels, active, filedItems, activeItems := 0, 0, 0, 0
	for _, s := range m.core.shards {
		inWheels += s.wheel.Len()
		active += len(s.active)
	}
	for _, i := range m.items {
		if i.filed() {
			filedItems++
			if wake := time.Duration(m.core.wakeAt.Load()); wake > i.latest() {
				m.check(false, "the driver sleeps until %v, one is due at %v", wake, i.latest())
			}
		}
		if i.queued {
			activeItems++
		}
	}
	m.check(inWheels == filedItems, "%d in the wheels, want %d", inWheels, filedItems)
	m.check(m.closed || active == activeItems, "%d active, want %d", active, activeItems)
	if limit := m.core.cfg.MaxPending; limit > 0 {
		m.check(m.core.pending == got.Pending && got.Pending <= limit, "%d counted", m.core.pending)
	}
}

func (m *model) step() {
	switch m.choose.of(9) {
	case 0, 1, 2:
		m.act(nil)
	case 3:
		m.elapse(time.Duration(m.choose.of(3)))
	case 4, 5:
		m.elapse(time.Duration(m.choose.of(300)) * time.Millisecond)
	case 6:
		m.work()
	default:
		m.elapse(max(0, min(time.Duration(m.core.wakeAt.Load())-m.now(), 24*time.Hour)))
		m.drive()
	}
	m.compare()
}

// steps does steps, and a few more after Shutdown. It returns their number.
func (m *model) steps(max int) (n int) {
	for left := max; left > 0; left-- {
		if m.closed && left > 10 {
			left = 10
		}
		m.step()
		n++
	}
	m.shutdown()
	for len(m.queue) > 0 {
		m.work()
	}
	m.compare()
	select {
	case <-m.core.quiet:
	default:
		m.check(false, "Shutdown waits for ever: %d uses", m.core.uses.Load())
	}
	return n
}

// TestTimerAgainstModel compares a Timer with the model. IDLEWHEEL_STEPS is the number of
// steps.
func TestTimerAgainstModel(t *testing.T) {
	steps, seed := 300_000, rand.Uint64()
	if text := os.Getenv("IDLEWHEEL_STEPS"); text != "" {
		var err error
		if steps, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	began, done := time.Now(), 0
	for round := uint64(0); done < steps; round++ {
		synctest.Test(t, func(t *testing.T) {
			done += newModel(t, choice{rng: rand.New(rand.NewPCG(seed, round))}).steps(1000)
		})
		if t.Failed() {
			t.Fatalf("seed %d, round %d", seed, round)
		}
	}
	t.Logf("%d steps, %.0f a second", done, float64(done)/time.Since(began).Seconds())
}

func FuzzTimer(f *testing.F) {
	for seed := range byte(8) {
		b := make([]byte, 1000)
		rand.NewChaCha8([32]byte{seed}).Read(b)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		synctest.Test(t, func(t *testing.T) {
			newModel(t, choice{bytes: bytes}).steps(len(bytes) / 4)
		})
	})
}
