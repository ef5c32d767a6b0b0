package wheel

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
)

var (
	// ErrPoolFull is returned by Pool.Execute while all workers are busy and the queue is full.
	ErrPoolFull = errors.New("wheel: pool is full")
	// ErrPoolClosed is returned by Pool.Execute after Close.
	ErrPoolClosed = errors.New("wheel: pool is closed")
)

// A Pool runs functions on a bounded number of goroutines. Its Execute is an executor for
// [TimerConfig]. Create one with [NewPool]. Safe for concurrent use.
type Pool struct {
	queue   chan func()
	workers int
	running sync.WaitGroup

	mu      sync.Mutex
	started int  // guarded by mu
	closed  bool // guarded by mu
}

// NewPool returns a Pool of up to the given number of workers, which are started as needed, with a
// queue for the given number of functions.
func NewPool(workers, queue int) (*Pool, error) {
	if workers < 1 || queue < 0 {
		return nil, fmt.Errorf("wheel: pool of %d workers with a queue of %d: must be at least 1 and 0", workers, queue)
	}
	return &Pool{queue: make(chan func(), queue), workers: workers}, nil
}

// Execute passes run to a worker, or returns ErrPoolFull, ErrPoolClosed, or ErrNoTask for nil. It
// does not block. A panic of run is not recovered, but a Timer recovers panics of its tasks itself.
func (p *Pool) Execute(run func()) error {
	if run == nil {
		return ErrNoTask
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrPoolClosed
	}
	if p.started < p.workers {
		p.started++
		p.startWorker(run)
		return nil
	}
	select {
	case p.queue <- run:
		return nil
	default:
		return ErrPoolFull
	}
}

// startWorker starts a worker. If a function ends the worker by runtime.Goexit, another one
// replaces it.
func (p *Pool) startWorker(first func()) {
	p.running.Go(func() {
		ended := false
		defer func() {
			if !ended {
				p.startWorker(func() {})
			}
		}()
		first()
		for run := range p.queue {
			run()
		}
		ended = true
	})
}

// Close refuses further functions, runs the waiting ones, and waits for the workers. A function of
// the Pool must not call it.
func (p *Pool) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.queue)
	}
	p.mu.Unlock()
	p.running.Wait()
}

// A Task runs when a Timeout expires. Run is called once per expiry with its Timeout, on the
// goroutine of the Timer or on one of the Executor. A periodic Timeout may be cancelled from there.
// A Timeout that runs once has expired by then: to run again, Run schedules another one. Run may
// call the Timer, but not Stop on the goroutine of the Timer. A panic is recovered and reported.
//
// A task that also has a method Cancelled is a [CancelTask].
type Task interface {
	Run(*Timeout)
}

// TaskFunc is an adapter that makes a function a Task.
type TaskFunc func(*Timeout)

// Run calls f.
func (f TaskFunc) Run(t *Timeout) { f(t) }

// taskName returns the name of the function or of the type of a task.
func taskName(task Task) string {
	v := reflect.ValueOf(task)
	if v.Kind() == reflect.Func {
		if f := runtime.FuncForPC(v.Pointer()); f != nil {
			return f.Name()
		}
	}
	return v.Type().String()
}

func isNone(task Task) bool {
	f, ok := task.(TaskFunc)
	return task == nil || ok && f == nil
}

// A CancelTask is a Task with a method that is called if the Timeout is cancelled: by Cancel or
// Stop, on the goroutine of the caller, or by the Timer, because the Timeout was missed or the
// executor refused it. A panic is recovered and reported.
type CancelTask interface {
	Task
	Cancelled(*Timeout)
}
