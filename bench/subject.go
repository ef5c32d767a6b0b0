package main

import (
	"time"

	"github.com/idlewheel/idlewheel/bench/internal/process"
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

// A kind is a subject in the table.
type kind struct {
	name    string
	module  string // its version is in the table
	version string // if it has no module
	note    string

	// new is nil for Netty, and vm for all others. Both are nil if Netty is not installed.
	new func(config) (subject, error)
	vm  *process.Process
}

// kinds returns all subjects in Go in the order of the table.
func kinds() []kind {
	return []kind{
		{
			name: base, new: newTimer,
			note: "`Timeout`; touch is `Touch` of an `Idle`, which stores at most once in a tick.",
		}, {
			name: "wheel.Wheel", new: newWheel,
			note: "One goroutine owns it, without locks, and passes the time once in each batch. A touch stores " +
				"the time, which is checked when the slot of the entry comes up.",
		}, {
			name: "time.AfterFunc", new: newAfterFunc,
			note: "The heap of the runtime. Touch is `Reset`.",
		}, {
			name: "container/heap", new: newHeap,
			note: "Behind a lock; what is due is popped in each tick, as in `OnTick` of gnet. A touch stores the " +
				"time, which is checked when the entry is on top.",
		}, {
			name: "RussellLuo/timingwheel", module: "github.com/RussellLuo/timingwheel", new: newRussellLuo,
			note: "Levels of 512 slots, as in Kafka. Rounds deadlines down. Reschedule is `Stop` and `AfterFunc`.",
		}, {
			name: "antlabs/timer", module: "github.com/antlabs/timer", new: newAntlabs,
			note: "Five levels, as in old kernels of Linux. Rounds deadlines down. Reschedule is `Stop` and `AfterFunc`: " +
				"the source calls its `Reset` unstable.",
		},
	}
}

// base is the subject with the ratio 1.
const base = "timer.Timer"
