package wheel_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/idlewheel/idlewheel/wheel"
)

// One Timer serves a whole process. A task runs once, unless it is reset or cancelled before.
func ExampleTimer() {
	timer, err := wheel.NewTimer(wheel.TimerConfig{Tick: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan bool)
	timeout, err := timer.NewTimeout(wheel.TaskFunc(func(*wheel.Timeout) {
		fmt.Println("the timeout was not reset in time")
		done <- true
	}), 20*time.Millisecond)
	if err != nil {
		log.Fatal(err) // stopped, or too many are pending
	}
	timeout.Reset(30 * time.Millisecond)
	<-done
	left, err := timer.Stop()
	fmt.Println(len(left), err)
	// Output:
	// the timeout was not reset in time
	// 0 <nil>
}

// The zero TimerConfig has a tick of 10 ms. The first NewTimeout starts the goroutine, and Stop
// ends it.
func ExampleNewTimer() {
	timer, err := wheel.NewTimer(wheel.TimerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer timer.Stop()
	fmt.Println(timer.Pending(), "pending")

	_, err = wheel.NewTimer(wheel.TimerConfig{Tick: -time.Second, Slots: 1000})
	fmt.Println(err)
	// Output:
	// 0 pending
	// wheel: Tick is -1s, must not be negative
	// wheel: tick is -1s, must be positive
	// wheel: 1000 slots, must be a power of two from 1 to 16777216
}

// Several Timeouts may share a task, which gets the expired Timeout.
func ExampleTimer_NewTimeout() {
	timer, err := wheel.NewTimer(wheel.TimerConfig{Tick: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer timer.Stop()

	expired := make(chan *wheel.Timeout)
	task := wheel.TaskFunc(func(t *wheel.Timeout) { expired <- t })
	tea, err := timer.NewTimeout(task, 5*time.Millisecond)
	if err != nil {
		log.Fatal(err)
	}
	rice, err := timer.NewTimeout(task, time.Hour)
	if err != nil {
		log.Fatal(err)
	}
	t := <-expired
	fmt.Println("tea:", t == tea, t.Expired())
	fmt.Println("rice:", rice.Cancel(), rice.Cancelled())
	// Output:
	// tea: true true
	// rice: true true
}

// Heartbeats put off the end of a session. Reset reports whether they came in time.
func ExampleTimeout_Reset() {
	timer, err := wheel.NewTimer(wheel.TimerConfig{Tick: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer timer.Stop()

	ended := make(chan bool)
	session, err := timer.NewTimeout(wheel.TaskFunc(func(*wheel.Timeout) { close(ended) }), time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("heartbeat:", session.Reset(2*time.Minute))
	fmt.Println("the last one:", session.Reset(5*time.Millisecond))
	<-ended
	fmt.Println("too late:", session.Reset(time.Minute))
	// Output:
	// heartbeat: true
	// the last one: true
	// too late: false
}

// A deadline for an answer: either Cancel succeeds or the task runs, never both.
func ExampleTimeout_Cancel() {
	timer, err := wheel.NewTimer(wheel.TimerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer timer.Stop()

	deadline, err := timer.NewTimeout(wheel.TaskFunc(func(*wheel.Timeout) { fmt.Println("no answer") }), time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	if deadline.Cancel() {
		fmt.Println("the answer came in time")
	}
	fmt.Println(timer.Pending(), "pending")
	// Output:
	// the answer came in time
	// 0 pending
}

// A task runs on a grid that does not drift, until it cancels itself.
func ExampleTimer_ScheduleAtFixedRate() {
	timer, err := wheel.NewTimer(wheel.TimerConfig{Tick: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer timer.Stop()

	runs, done := 0, make(chan bool)
	_, err = timer.ScheduleAtFixedRate(wheel.TaskFunc(func(t *wheel.Timeout) {
		runs++
		fmt.Println("run", runs)
		if runs == 3 {
			t.Cancel()
			close(done)
		}
	}), 0, 2*time.Millisecond)
	if err != nil {
		log.Fatal(err)
	}
	<-done
	// Output:
	// run 1
	// run 2
	// run 3
}

// A task pauses between its runs, however long they take.
func ExampleTimer_ScheduleWithFixedDelay() {
	timer, err := wheel.NewTimer(wheel.TimerConfig{Tick: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer timer.Stop()

	var ended time.Time // of the last run
	pauses := make(chan time.Duration, 1)
	poll, err := timer.ScheduleWithFixedDelay(wheel.TaskFunc(func(*wheel.Timeout) {
		if !ended.IsZero() {
			select {
			case pauses <- time.Since(ended):
			default:
			}
		}
		time.Sleep(2 * time.Millisecond) // the work
		ended = time.Now()
	}), 0, 10*time.Millisecond)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("never sooner:", <-pauses >= 10*time.Millisecond)
	fmt.Println("cancelled:", poll.Cancel())
	// Output:
	// never sooner: true
	// cancelled: true
}

// Stop returns the Timeouts that have not run, and no task runs after it.
func ExampleTimer_Stop() {
	timer, err := wheel.NewTimer(wheel.TimerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	for _, to := range []string{"alice", "bob"} {
		if _, err := timer.NewTimeout(reminder(to), time.Hour); err != nil {
			log.Fatal(err)
		}
	}
	left, err := timer.Stop()
	for _, t := range left {
		fmt.Println("not sent to", t.Task().(reminder))
	}
	fmt.Println(err)

	_, err = timer.NewTimeout(reminder("carol"), time.Hour)
	fmt.Println(errors.Is(err, wheel.ErrStopped))
	// Unordered output:
	// not sent to alice
	// not sent to bob
	// <nil>
	// true
}

// A reminder is a Task with fields.
type reminder string

func (to reminder) Run(*wheel.Timeout) { fmt.Println("to", string(to)) }

// StopContext does not wait for ever for a task that does not return.
func ExampleTimer_StopContext() {
	timer, err := wheel.NewTimer(wheel.TimerConfig{Tick: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	running, blocked := make(chan bool), make(chan bool)
	if _, err := timer.NewTimeout(wheel.TaskFunc(func(*wheel.Timeout) { close(running); <-blocked }), 0); err != nil {
		log.Fatal(err)
	}
	<-running

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err = timer.StopContext(ctx)
	fmt.Println(err)
	close(blocked)
	_, err = timer.Stop() // waits until it is over
	fmt.Println(err)
	// Output:
	// wheel: a task is still running: context deadline exceeded
	// <nil>
}

// A task with a method that is called if it will not run.
func ExampleCancelTask() {
	timer, err := wheel.NewTimer(wheel.TimerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := timer.NewTimeout(upload("photo.jpg"), time.Hour); err != nil {
		log.Fatal(err)
	}
	_, _ = timer.Stop()
	// Output: photo.jpg is given up
}

type upload string

var _ wheel.CancelTask = upload("")

func (u upload) Run(*wheel.Timeout)       { fmt.Println(string(u), "is tried again") }
func (u upload) Cancelled(*wheel.Timeout) { fmt.Println(string(u), "is given up") }

// Long tasks run on the workers of a Pool, so that they do not delay other tasks.
func ExampleTimerConfig_executor() {
	pool, err := wheel.NewPool(4, 1000)
	if err != nil {
		log.Fatal(err)
	}
	timer, err := wheel.NewTimer(wheel.TimerConfig{Tick: time.Millisecond, Executor: pool.Execute})
	if err != nil {
		log.Fatal(err)
	}
	begun := make(chan string)
	for _, name := range []string{"alice", "bob"} { // each waits until both have begun
		_, err := timer.NewTimeout(wheel.TaskFunc(func(*wheel.Timeout) {
			select {
			case begun <- name:
			case other := <-begun:
				fmt.Println("both at the same time:", name != other)
			}
		}), 5*time.Millisecond)
		if err != nil {
			log.Fatal(err)
		}
	}
	for timer.Pending() > 0 {
		time.Sleep(time.Millisecond)
	}
	_, _ = timer.Stop()
	pool.Close() // after the Timer; waits for running tasks
	// Output: both at the same time: true
}

// A Timer with a limit refuses further Timeouts, so that its memory is bounded.
func ExampleTimerConfig_maxPending() {
	timer, err := wheel.NewTimer(wheel.TimerConfig{MaxPending: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer timer.Stop()

	task := wheel.TaskFunc(func(*wheel.Timeout) {})
	first, err := timer.NewTimeout(task, time.Hour)
	fmt.Println(err)
	_, err = timer.NewTimeout(task, time.Hour)
	fmt.Println(errors.Is(err, wheel.ErrTooManyPending), err)
	first.Cancel()
	_, err = timer.NewTimeout(task, time.Hour)
	fmt.Println(err)
	// Output:
	// <nil>
	// true wheel: too many pending timeouts: 1
	// <nil>
}

// A panic ends neither the Timer nor the process. The hook gets its value.
func ExampleTimerConfig_onPanic() {
	panics := make(chan any)
	timer, err := wheel.NewTimer(wheel.TimerConfig{
		Tick:    time.Millisecond,
		OnPanic: func(_ *wheel.Timeout, value any, stack []byte) { panics <- value },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer timer.Stop()

	if _, err := timer.NewTimeout(wheel.TaskFunc(func(*wheel.Timeout) { panic("no such session") }), 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-panics)
	fmt.Println(timer.Stats().Panics, "panic")
	// Output:
	// no such session
	// 1 panic
}

// A Pool has a bounded number of goroutines and a bounded queue. Execute returns an error when both
// are full.
func ExampleNewPool() {
	pool, err := wheel.NewPool(1, 1)
	if err != nil {
		log.Fatal(err)
	}
	wait := make(chan bool)
	fmt.Println("one runs:", pool.Execute(func() { <-wait }))
	fmt.Println("one waits:", pool.Execute(func() {}))
	fmt.Println("one too many:", pool.Execute(func() {}))
	close(wait)
	pool.Close()
	fmt.Println("after Close:", pool.Execute(func() {}))
	// Output:
	// one runs: <nil>
	// one waits: <nil>
	// one too many: wheel: pool is full
	// after Close: wheel: pool is closed
}

// Counters for a metrics page. Lateness is a histogram by powers of two.
func ExampleTimer_Stats() {
	timer, err := wheel.NewTimer(wheel.TimerConfig{Tick: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan bool)
	task := wheel.TaskFunc(func(*wheel.Timeout) { close(ran) })
	if _, err := timer.NewTimeout(task, 5*time.Millisecond); err != nil {
		log.Fatal(err)
	}
	if _, err := timer.NewTimeout(task, time.Hour); err != nil {
		log.Fatal(err)
	}
	<-ran
	_, _ = timer.Stop()

	s := timer.Stats()
	fmt.Println(s.Scheduled, "scheduled,", s.Expired, "expired,", s.Cancelled, "cancelled by Stop")
	var runs uint64
	for _, n := range s.Lateness {
		runs += n
	}
	fmt.Println(runs, "in the histogram")
	// Output:
	// 2 scheduled, 1 expired, 1 cancelled by Stop
	// 1 in the histogram
}
