package main

import (
	"context"
	"math"
	"time"

	"github.com/RussellLuo/timingwheel"
	antlabs "github.com/antlabs/timer"

	"github.com/idlewheel/idlewheel/bench/internal/process"
	"github.com/idlewheel/idlewheel/timer"
	"github.com/idlewheel/idlewheel/wheel"
)

// A subject is one implementation of timers. An index names a timer, as a connection does; the
// subject keeps the handle that its user would keep.
//
// One goroutine calls the functions. The subject calls the fire function of the config on any one.
type subject struct {
	schedule   func(i int, d time.Duration) // starts timer i, which is not pending
	cancel     func(i int)                  // ends timer i, which is pending
	reschedule func(i int, d time.Duration) // moves timer i, which is pending, to d from now
	step       func()                       // called in each tick and in each batch of operations
	close      func()                       // ends timers and goroutines
}

// config is the argument of a constructor of a subject.
type config struct {
	n int // number of indices

	// fire is called with the index of a timer that expires. If nil, timers share one callback.
	fire func(i int)

	// timeout is set if reschedule is only called for touches: each timer is due this time after
	// its last touch. A subject without a quicker way ignores it.
	timeout time.Duration
}

// callback returns the function that timer i calls when it expires.
func (c config) callback(i int) func() {
	if c.fire == nil {
		return nothing
	}
	return func() { c.fire(i) }
}

func nothing() {}

// lazily lets a touch of a subject store the time of its last step. It returns the function that
// the subject calls for a timer that is due, which is started again if it was touched.
func (c config) lazily(s *subject, now *time.Duration) (expire func(i int)) {
	if c.timeout == 0 {
		return func(i int) { c.callback(i)() }
	}
	heard := make([]time.Duration, c.n) // 0: never
	s.reschedule = func(i int, _ time.Duration) { heard[i] = *now }
	return func(i int) {
		if end := heard[i] + c.timeout; heard[i] > 0 && end > *now {
			s.schedule(i, end-*now)
			return
		}
		c.callback(i)()
	}
}

// A kind is a subject in the table.
type kind struct {
	name    string // of a module on GitHub: its path there
	version string // of another one
	note    string

	// new is nil for Netty, and vm for all others. Both are nil if Netty is not installed.
	new func(config) subject
	vm  *process.Process
}

func (k kind) String() string { return k.name }

// kinds returns all subjects in Go in the order of the table.
func kinds() []kind {
	return []kind{
		{name: base, note: "`Timeout`; touch is `Touch` of an `Idle`, which stores at most once in a tick.", new: newTimer},
		{name: "wheel.Wheel", note: "One goroutine owns it, without locks, and passes the time once in each batch. A touch " +
			"stores the time, which is checked when the slot of the entry comes up.", new: newWheel},
		{name: "time.AfterFunc", note: "The heap of the runtime. Touch is `Reset`.", new: newAfterFunc},
		{name: "container/heap", note: "Behind a lock; what is due is popped in each tick, as in `OnTick` of gnet. A touch " +
			"stores the time, which is checked when the entry is on top.", new: newHeap},
		{name: "RussellLuo/timingwheel", note: "Levels of 512 slots, as in Kafka. Rounds deadlines down. Reschedule is " +
			"`Stop` and `AfterFunc`.", new: newRussellLuo},
		{name: "antlabs/timer", note: "Five levels, as in old kernels of Linux. Rounds deadlines down. Reschedule is " +
			"`Stop` and `AfterFunc`: the source calls its `Reset` unstable.", new: newAntlabs},
	}
}

const (
	base      = "timer.Timer" // has the ratio 1
	nettyName = "Netty HashedWheelTimer"
)

// startNetty starts the program NettyBench. If that is impossible, the note is the reason.
func startNetty() kind {
	cmd, version, err := process.Netty("netty/NettyBench.java")
	var vm *process.Process
	if err == nil {
		vm, err = process.Start(cmd)
	}
	if err != nil {
		return kind{name: nettyName, note: err.Error() + "."}
	}
	return kind{
		name: nettyName, version: version, vm: vm,
		note: "In a Java VM of its own. A call only queues the change; a worker files it at the next tick, on another core. " +
			"Reschedule is `cancel` and `newTimeout`. Processor times include those of the VM.",
	}
}

// newTimer makes a [timer.Timer] with a Timeout per index, or with an Idle if it is touched.
func newTimer(c config) subject {
	timers := must(timer.New(timer.Config{Tick: tick}))
	s := subject{step: nothing, close: func() { must(timers.Shutdown(context.Background())) }}
	if c.timeout > 0 {
		idles := make([]*timer.Idle, c.n)
		s.schedule = func(i int, d time.Duration) { idles[i] = must(timers.AfterIdle(d, c.callback(i))) }
		s.cancel = func(i int) { idles[i].Stop() }
		s.reschedule = func(i int, _ time.Duration) { idles[i].Touch() }
		return s
	}
	timeouts := make([]*timer.Timeout, c.n)
	s.schedule = func(i int, d time.Duration) { timeouts[i] = must(timers.AfterFunc(d, c.callback(i))) }
	s.cancel = func(i int) { timeouts[i].Stop() }
	s.reschedule = func(i int, d time.Duration) { timeouts[i].Reset(d) }
	return s
}

// must panics with an error: of a constructor, or of a Timer after Shutdown.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// newWheel makes a [wheel.Wheel], which reads no clock.
func newWheel(c config) subject {
	w := must(wheel.New[uint32](tick))
	origin := time.Now()
	var now time.Duration // since the origin
	handles := make([]wheel.Handle, c.n)
	s := subject{
		schedule:   func(i int, d time.Duration) { handles[i] = w.Schedule(now+d, uint32(i)) },
		cancel:     func(i int) { w.Cancel(handles[i]) },
		reschedule: func(i int, d time.Duration) { w.Reschedule(handles[i], now+d) },
		close:      nothing,
	}
	expire := c.lazily(&s, &now)
	due := func(_ wheel.Handle, i uint32) { expire(int(i)) }
	s.step = func() {
		now = time.Since(origin)
		w.Advance(now, math.MaxInt, due)
	}
	return s
}

func newAfterFunc(c config) subject {
	timers := make([]*time.Timer, c.n)
	return subject{
		schedule:   func(i int, d time.Duration) { timers[i] = time.AfterFunc(d, c.callback(i)) },
		cancel:     func(i int) { timers[i].Stop() },
		reschedule: func(i int, d time.Duration) { timers[i].Reset(d) },
		step:       nothing,
		close: func() {
			for _, t := range timers {
				t.Stop()
			}
		},
	}
}

func newRussellLuo(c config) subject {
	wheel, timers := timingwheel.NewTimingWheel(tick, 512), make([]*timingwheel.Timer, c.n)
	wheel.Start()
	return subject{
		schedule: func(i int, d time.Duration) { timers[i] = wheel.AfterFunc(d, c.callback(i)) },
		cancel:   func(i int) { timers[i].Stop() },
		reschedule: func(i int, d time.Duration) {
			timers[i].Stop()
			timers[i] = wheel.AfterFunc(d, c.callback(i))
		},
		step:  nothing,
		close: wheel.Stop,
	}
}

// newAntlabs has a tick of 10 ms, too.
func newAntlabs(c config) subject {
	timer, nodes := antlabs.NewTimer(), make([]antlabs.TimeNoder, c.n)
	go timer.Run()
	return subject{
		schedule: func(i int, d time.Duration) { nodes[i] = timer.AfterFunc(d, c.callback(i)) },
		cancel:   func(i int) { nodes[i].Stop() },
		reschedule: func(i int, d time.Duration) {
			nodes[i].Stop()
			nodes[i] = timer.AfterFunc(d, c.callback(i))
		},
		step:  nothing,
		close: timer.Stop,
	}
}
