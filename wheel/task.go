package wheel

import (
	"reflect"
	"runtime"
)

// A Task is what a Timeout does when it expires. Run is called once per expiry, on the goroutine of the Timer or where its
// Executor puts it, and gets the Timeout it belongs to. A periodic one may be cancelled from there; one that runs only once is
// over by then, so to go on it schedules another. It may call the Timer as well, but not Stop from the goroutine of the Timer.
// A panic in it is recovered and reported.
//
// A task that also has a method Cancelled is a [CancelTask].
type Task interface {
	Run(*Timeout)
}

// TaskFunc makes a function a Task.
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

// A CancelTask is told when it will not run any more: by Cancel or Stop, on the goroutine that called it; by a Timer that
// drops what it has missed; and by one whose executor did not want it. A panic in it is recovered and reported.
type CancelTask interface {
	Task
	Cancelled(*Timeout)
}
