package wheel_test

import (
	"fmt"
	"log"
	"math"
	"time"

	"github.com/idlewheel/idlewheel/wheel"
)

// Sessions end two seconds after their last heartbeat.
func ExampleWheel() {
	w, err := wheel.New[string](100 * time.Millisecond)
	if err != nil {
		log.Fatal(err)
	}
	expire := func(_ wheel.Handle, name string) { fmt.Println(name, "expired") }

	alice := w.Schedule(2*time.Second, "alice")
	w.Schedule(2*time.Second, "bob")

	w.Reschedule(alice, 5*time.Second) // a heartbeat of alice
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

// The caller of a Wheel reads the clock, here the time since a start, and sleeps until an entry may
// be due.
func ExampleWheel_NextDue() {
	w, err := wheel.New[string](time.Millisecond)
	if err != nil {
		log.Fatal(err)
	}
	start := time.Now()
	w.Schedule(time.Since(start)+5*time.Millisecond, "tea")
	w.Schedule(time.Since(start)+10*time.Millisecond, "rice")

	for w.Len() > 0 {
		if due, ok := w.NextDue(); ok {
			time.Sleep(due - time.Since(start))
		}
		w.Advance(time.Since(start), math.MaxInt, func(_ wheel.Handle, what string) { fmt.Println(what, "is ready") })
	}
	// Output:
	// tea is ready
	// rice is ready
}

// A deadline is rounded up to a tick, so no entry expires early.
func ExampleWheel_Schedule() {
	w, err := wheel.New[string](100 * time.Millisecond)
	if err != nil {
		log.Fatal(err)
	}
	h := w.Schedule(1234*time.Millisecond, "close session 7")
	deadline, _ := w.Deadline(h)
	due, _ := w.NextDue()
	fmt.Println("deadline", deadline, "and due at", due)

	expired, _ := w.Advance(1299*time.Millisecond, math.MaxInt, func(wheel.Handle, string) {})
	fmt.Println(expired, "expired")
	w.Advance(1300*time.Millisecond, math.MaxInt, func(_ wheel.Handle, what string) { fmt.Println(what) })
	// Output:
	// deadline 1.234s and due at 1.3s
	// 0 expired
	// close session 7
}

// A budget bounds the duration of a call of Advance, so that the caller can do other work in
// between.
func ExampleWheel_Advance() {
	w, err := wheel.New[int](time.Second)
	if err != nil {
		log.Fatal(err)
	}
	for session := range 10 {
		w.Schedule(30*time.Second, session)
	}
	for more := true; more; {
		var expired int
		expired, more = w.Advance(30*time.Second, 4, func(_ wheel.Handle, session int) {})
		fmt.Println(expired, "expired, more to come:", more)
	}
	// Output:
	// 4 expired, more to come: true
	// 4 expired, more to come: true
	// 2 expired, more to come: false
}

// This is the picture of the package comment: three entries at tick 75, in levels with slots of 1,
// 64 and 4096 ticks. An entry in an upper level moves down when its slot comes up.
func ExampleWheel_Slots() {
	const tick = time.Millisecond
	w, err := wheel.New[string](tick)
	if err != nil {
		log.Fatal(err)
	}
	show := func() {
		for s := range w.Slots() {
			fmt.Printf("  %d in a slot of %v that comes up at %v\n", s.Entries, s.Span, s.Due)
		}
	}
	expire := func(_ wheel.Handle, name string) { fmt.Println(name, "expires") }

	w.Advance(75*tick, math.MaxInt, expire)
	w.Schedule(80*tick, "A")
	w.Schedule(200*tick, "B")
	w.Schedule(9000*tick, "C")
	show()
	for _, now := range []time.Duration{80 * tick, 192 * tick, 200 * tick, 8192 * tick, 8960 * tick, 9000 * tick} {
		fmt.Println("at", now)
		w.Advance(now, math.MaxInt, expire)
		show()
	}
	// Output:
	//   1 in a slot of 1ms that comes up at 80ms
	//   1 in a slot of 64ms that comes up at 192ms
	//   1 in a slot of 4.096s that comes up at 8.192s
	// at 80ms
	// A expires
	//   1 in a slot of 64ms that comes up at 192ms
	//   1 in a slot of 4.096s that comes up at 8.192s
	// at 192ms
	//   1 in a slot of 1ms that comes up at 200ms
	//   1 in a slot of 4.096s that comes up at 8.192s
	// at 200ms
	// B expires
	//   1 in a slot of 4.096s that comes up at 8.192s
	// at 8.192s
	//   1 in a slot of 64ms that comes up at 8.96s
	// at 8.96s
	//   1 in a slot of 1ms that comes up at 9s
	// at 9s
	// C expires
}
