package timer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/idlewheel/idlewheel/timer"
)

// One Timer serves a whole program.
func Example() {
	timers, err := timer.New(timer.Config{Tick: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan bool)
	t, err := timers.AfterFunc(time.Minute, func() {
		fmt.Println("no heartbeat")
		close(done)
	})
	if err != nil {
		log.Fatal(err) // shut down, or too many are pending
	}
	fmt.Println("in time:", t.Reset(20*time.Millisecond))
	<-done
	left, err := timers.Shutdown(context.Background())
	fmt.Println(len(left), err)
	// Output:
	// in time: true
	// no heartbeat
	// 0 <nil>
}

// A deadline for an answer: either Stop is true or the task runs.
func ExampleTimer_AfterFunc() {
	timers, err := timer.New(timer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	deadline, err := timers.AfterFunc(time.Minute, func() { fmt.Println("no answer") })
	if err != nil {
		log.Fatal(err)
	}
	if deadline.Stop() {
		fmt.Println("the answer came in time")
	}
	fmt.Println(timers.Pending(), "pending")
	_, _ = timers.Shutdown(context.Background())
	// Output:
	// the answer came in time
	// 0 pending
}

// A task runs on a grid that does not drift. The first run is at once.
func ExampleTimer_Every() {
	timers, err := timer.New(timer.Config{Tick: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	runs, done := 0, make(chan bool)
	_, err = timers.Every(2*time.Millisecond, func() { // one run at a time, so runs needs no lock
		if runs++; runs <= 3 {
			fmt.Println("run", runs)
		}
		if runs == 3 {
			close(done)
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	<-done
	_, _ = timers.Shutdown(context.Background()) // waits for a run
	// Output:
	// run 1
	// run 2
	// run 3
}

// A task is tried again with growing pauses until it succeeds.
func ExampleTimeout_Reset() {
	timers, err := timer.New(timer.Config{Tick: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	self := make(chan *timer.Timeout, 1) // the task may run before AfterFunc has returned
	done := make(chan bool)
	tries := 0
	t, err := timers.AfterFunc(0, func() {
		if tries++; tries == 3 {
			fmt.Println("try", tries, "succeeds")
			close(done)
			return
		}
		fmt.Println("try", tries, "fails")
		t := <-self
		t.Reset(time.Duration(tries) * time.Millisecond)
		self <- t
	})
	if err != nil {
		log.Fatal(err)
	}
	self <- t
	<-done
	_, _ = timers.Shutdown(context.Background())
	// Output:
	// try 1 fails
	// try 2 fails
	// try 3 succeeds
}

// A pool runs functions on a fixed number of goroutines.
type pool struct {
	queue chan func()
	ended sync.WaitGroup
}

func newPool(workers, queue int) *pool {
	p := &pool{queue: make(chan func(), queue)}
	for range workers {
		p.ended.Go(func() {
			for run := range p.queue {
				run()
			}
		})
	}
	return p
}

func (p *pool) submit(run func()) error {
	select {
	case p.queue <- run:
		return nil
	default:
		return errors.New("the pool is full")
	}
}

// Long tasks run on a pool, so that they do not delay others. The Submit of an ants.Pool with
// WithNonblocking does the same.
func ExampleConfig_executor() {
	p := newPool(4, 1000)
	timers, err := timer.New(timer.Config{Tick: time.Millisecond, Executor: p.submit})
	if err != nil {
		log.Fatal(err)
	}
	met := make(chan string)
	var ended sync.WaitGroup
	for _, name := range []string{"alice", "bob"} { // each waits for the other
		ended.Add(1)
		_, err := timers.AfterFunc(5*time.Millisecond, func() {
			defer ended.Done()
			select {
			case met <- name:
			case other := <-met:
				fmt.Println("both at the same time:", name != other)
			}
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	ended.Wait()
	_, _ = timers.Shutdown(context.Background()) // first the Timer, then what it uses
	close(p.queue)
	p.ended.Wait()
	// Output: both at the same time: true
}

// A Timer with a limit refuses further Timeouts, so that its memory is bounded.
func ExampleConfig_maxPending() {
	timers, err := timer.New(timer.Config{MaxPending: 1})
	if err != nil {
		log.Fatal(err)
	}
	first, err := timers.AfterFunc(time.Hour, func() {})
	fmt.Println(err)
	_, err = timers.AfterFunc(time.Hour, func() {})
	fmt.Println(errors.Is(err, timer.ErrTooManyPending), err)
	first.Stop()
	_, err = timers.AfterFunc(time.Hour, func() {})
	fmt.Println(err)
	_, _ = timers.Shutdown(context.Background())
	// Output:
	// <nil>
	// true timer: too many pending timeouts: 1
	// <nil>
}

// Shutdown returns the Timeouts that were not run. This program runs them at once.
func ExampleTimer_Shutdown() {
	timers, err := timer.New(timer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"alice", "bob"} {
		if _, err := timers.AfterFunc(time.Hour, func() { fmt.Println("reminder to", name) }); err != nil {
			log.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	left, err := timers.Shutdown(ctx)
	for _, t := range left {
		t.Task()()
	}
	fmt.Println(err)
	_, err = timers.AfterFunc(time.Hour, func() {})
	fmt.Println(errors.Is(err, timer.ErrShutdown))
	// Unordered output:
	// reminder to alice
	// reminder to bob
	// <nil>
	// true
}

// Counters for a metrics page.
func ExampleTimer_Stats() {
	timers, err := timer.New(timer.Config{Tick: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	ran := make(chan bool)
	for _, d := range []time.Duration{time.Millisecond, time.Hour} {
		if _, err := timers.AfterFunc(d, func() { close(ran) }); err != nil {
			log.Fatal(err)
		}
	}
	<-ran
	_, _ = timers.Shutdown(context.Background())
	s := timers.Stats()
	fmt.Println(s.Scheduled, "scheduled,", s.Runs, "run,", s.Stopped, "stopped")
	// Output: 2 scheduled, 1 run, 1 stopped
}

// A session of a protocol without connections ends when no packet has come for a time.
func ExampleIdle() {
	timers, err := timer.New(timer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan string)
	session, err := timers.AfterIdle(100*time.Millisecond, func() { ended <- "the session has ended" })
	if err != nil {
		log.Fatal(err)
	}
	for range 5 {
		time.Sleep(50 * time.Millisecond)
		session.Touch() // a packet
	}
	fmt.Println(<-ended)
	if _, err := timers.Shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: the session has ended
}
