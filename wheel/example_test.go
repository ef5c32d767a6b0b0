package wheel_test

import (
	"fmt"
	"math"
	"time"

	"github.com/idlewheel/idlewheel/wheel"
)

func ExampleWheel() {
	w, err := wheel.New[string](100*time.Millisecond, 1024)
	if err != nil {
		panic(err)
	}
	expire := func(_ wheel.Handle, name string) { fmt.Println(name, "expired") }

	alice := w.Schedule(2*time.Second, "alice")
	w.Schedule(2*time.Second, "bob")

	alice = w.Reschedule(alice, 5*time.Second) // a heartbeat of alice
	w.Advance(2*time.Second, math.MaxInt, expire)

	next, _ := w.NextDue()
	fmt.Println("sleep until", next)
	w.Cancel(alice)
	fmt.Println(w.Len(), "pending")
	// Output:
	// bob expired
	// sleep until 5s
	// 0 pending
}

func ExampleTimer() {
	timer, err := wheel.NewTimer(wheel.TimerConfig{Tick: time.Millisecond})
	if err != nil {
		panic(err)
	}
	done := make(chan bool)
	timeout, err := timer.NewTimeout(wheel.TaskFunc(func(*wheel.Timeout) {
		fmt.Println("nobody has reset it in time")
		done <- true
	}), 20*time.Millisecond)
	if err != nil {
		panic(err) // stopped, or too many are pending
	}
	timeout.Reset(30 * time.Millisecond)
	<-done
	left, err := timer.Stop()
	fmt.Println(len(left), err)
	// Output:
	// nobody has reset it in time
	// 0 <nil>
}
