// Package timer runs tasks after delays, for sessions, requests and whatever else is no connection
// of package idle, which does not use it. It has the contract of Netty's HashedWheelTimer and the
// conventions of package time:
//
//	timers, err := timer.New(timer.Config{})
//	t, err := timers.AfterFunc(30*time.Second, func() { ... })
//	t.Reset(30 * time.Second)
//	t.Stop()
//	i, err := timers.AfterIdle(30*time.Second, func() { ... })
//	i.Touch() // for each packet of a session
//	left, err := timers.Shutdown(ctx)
//
// # When to use it
//
// Use [time.AfterFunc] for a few thousand timers, or where a millisecond matters. Use a Timer if
// many timeouts are pending and most of them are stopped or moved before they expire, as those of
// requests, sessions and heartbeats are, or if you need one of these:
//
//   - a limit for the number of pending timeouts
//   - tasks on a bounded pool, with retries while the pool is full
//   - the end of all timeouts at once, with a list of those that were not run
//   - periodic tasks with runs that do not overlap and do not pile up after a stall
//   - one goroutine for all tasks, so that they need no lock between them
//
// A connection of package idle has timeouts, and After and Every of idle.Conn. A program that has
// an event loop of its own can own a [wheel.Wheel] instead, without locks.
//
// Use AfterIdle instead of Reset for sessions of UDP or QUIC, game rooms and pools, where the time
// begins anew with each packet: a Touch takes no lock, and times in which the process was stopped
// do not count.
//
// # Contract
//
// A task never begins early. It begins at most once per deadline, and runs of one Timeout never
// overlap.
//
// After a Stop that is true the task does not begin. A Stop that is false has no effect on a task
// that is running, and does not wait for it. After Shutdown has returned nil nothing runs, not even
// the Executor, so that a program may close what its tasks use:
//
//	left, err := timers.Shutdown(ctx)
//	db.Close()
//
// A Reset that has returned is final: a task that was due, waited for an executor or was refused by
// one runs at the new deadline and not before.
//
// A task may call all methods of Timer and Timeout, except that a task or an Executor that calls
// Shutdown waits for itself. A panic is recovered and logged, and runtime.Goexit is logged; neither
// ends the Timer. A task that gets the Timeout from the variable to which AfterFunc is assigned
// needs a lock or a channel, as with [time.AfterFunc]: the task may run before the assignment.
//
// # Ownership
//
// Timer and Timeout are safe for concurrent use. Tasks run on the goroutine of the Timer, one after
// the other, or where the Executor calls them. The Executor is called on the goroutine of the
// Timer. No lock is held while a task or the Executor runs.
//
// The goroutine exists while a Timeout waits for its deadline. A Timer without references that was
// not shut down is reported in the log; its pending tasks still run, and then its goroutine ends.
//
// # Precision
//
// A task begins at most one tick after its deadline, plus the time that the machine needs to wake
// up the goroutine, plus the tasks before it; the task of an Idle at most two ticks.
// Config.SkipAfter leaves out runs that are very late. Deadlines are on the monotonic clock, which
// on Linux stands still while the system is suspended.
//
// # Algorithm
//
// A Timer has about four shards per processor, up to 64. Each has a [wheel.Wheel] behind a mutex,
// which also guards the state of its Timeouts. AfterFunc takes the shard that it last took on the
// same processor.
//
//	any goroutine                 a shard                    the driver
//	AfterFunc, Stop, Reset --> mutex [ wheel ] <-- Advance -- sleeps until the earliest NextDue
//	                                                 |
//	                                                 +------> runs what is due, or gives it
//	                                                          to the Executor
//
// # Cost
//
// A pending Timeout takes an allocation of 48 bytes and 35 bytes in a wheel, an Idle 24, 96 and 35.
// Reset, Stop and Touch allocate nothing. Among 100,000 AfterFunc takes 160 ns, Stop 155, Reset 203
// and Touch 18: bench/results/timers.md compares them with [time.AfterFunc] and others. A Timer
// itself takes 3 KiB per shard, 23 KiB once the shard is in use and as much again if it has an
// Idle, and then 32 KiB for the clock.
package timer
