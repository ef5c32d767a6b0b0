package wheel

import (
	"reflect"
	"runtime"
)

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
