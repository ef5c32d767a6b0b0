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
	w, err := wheel.New[string](100*time.Millisecond, 1024)
	if err != nil {
		log.Fatal(err)
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

// A tick of 100 ms and 1024 slots suit timeouts of up to 102 s. An error names all mistakes.
func ExampleNew() {
	w, err := wheel.New[string](100*time.Millisecond, 1024)
	fmt.Println(w.Len(), err)

	_, err = wheel.New[string](0, 1000)
	fmt.Println(err)
	// Output:
	// 0 <nil>
	// wheel: tick is 0s, must be positive
	// wheel: 1000 slots, must be a power of two from 1 to 16777216
}

// The caller of a Wheel reads the clock, here the time since a start, and sleeps until an entry may
// be due.
func ExampleWheel_NextDue() {
	w, err := wheel.New[string](time.Millisecond, 64)
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
	w, err := wheel.New[string](100*time.Millisecond, 64)
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

// Keep the Handle that Reschedule returns: it differs if the deadline moves to an earlier instant.
func ExampleWheel_Reschedule() {
	w, err := wheel.New[string](time.Second, 64)
	if err != nil {
		log.Fatal(err)
	}
	first := w.Schedule(10*time.Second, "session 7")
	later := w.Reschedule(first, 20*time.Second)
	earlier := w.Reschedule(later, 5*time.Second)
	fmt.Println("the same after a later deadline:", later == first)
	fmt.Println("the same after an earlier one:", earlier == later)

	w.Advance(5*time.Second, math.MaxInt, func(wheel.Handle, string) {})
	fmt.Println("too late:", w.Reschedule(earlier, time.Minute) == 0)
	// Output:
	// the same after a later deadline: true
	// the same after an earlier one: false
	// too late: true
}

// Cancel reports whether it came in time. A stale Handle does no harm.
func ExampleWheel_Cancel() {
	w, err := wheel.New[string](time.Second, 64)
	if err != nil {
		log.Fatal(err)
	}
	h := w.Schedule(10*time.Second, "session 7")
	fmt.Println(w.Cancel(h), w.Cancel(h))

	h = w.Schedule(10*time.Second, "session 8")
	w.Advance(10*time.Second, math.MaxInt, func(_ wheel.Handle, name string) { fmt.Println(name, "expired") })
	fmt.Println(w.Cancel(h))
	// Output:
	// true false
	// session 8 expired
	// false
}

// A budget bounds the duration of a call of Advance, so that the caller can do other work in
// between.
func ExampleWheel_Advance() {
	w, err := wheel.New[int](time.Second, 64)
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

// An expiry callback may reschedule its own entry, which keeps its Handle.
func ExampleWheel_Advance_periodic() {
	w, err := wheel.New[string](time.Second, 64)
	if err != nil {
		log.Fatal(err)
	}
	w.Schedule(time.Minute, "report")
	for now := time.Duration(0); now <= 3*time.Minute; now += time.Second {
		w.Advance(now, math.MaxInt, func(h wheel.Handle, what string) {
			fmt.Println(what, "at", now)
			w.Reschedule(h, now+time.Minute)
		})
	}
	// Output:
	// report at 1m0s
	// report at 2m0s
	// report at 3m0s
}

// This is the diagram of the package comment: three entries at tick 19, in rings with slots of 1, 8
// and 512 ticks. An entry in an upper ring moves down when its slot comes up.
func ExampleWheel_Slots() {
	const tick = time.Millisecond
	w, err := wheel.New[string](tick, 8)
	if err != nil {
		log.Fatal(err)
	}
	show := func() {
		for s := range w.Slots() {
			fmt.Printf("  %d in a slot of %v that comes up at %v\n", s.Entries, s.Span, s.Due)
		}
	}
	expire := func(_ wheel.Handle, name string) { fmt.Println(name, "expires") }

	w.Advance(19*tick, math.MaxInt, expire)
	w.Schedule(22*tick, "A")
	w.Schedule(30*tick, "B")
	w.Schedule(1003*tick, "C")
	show()
	for _, now := range []time.Duration{22 * tick, 24 * tick, 30 * tick, 512 * tick, 1000 * tick, 1003 * tick} {
		fmt.Println("at", now)
		w.Advance(now, math.MaxInt, expire)
		show()
	}
	// Output:
	//   1 in a slot of 1ms that comes up at 22ms
	//   1 in a slot of 8ms that comes up at 24ms
	//   1 in a slot of 512ms that comes up at 512ms
	// at 22ms
	// A expires
	//   1 in a slot of 8ms that comes up at 24ms
	//   1 in a slot of 512ms that comes up at 512ms
	// at 24ms
	//   1 in a slot of 1ms that comes up at 30ms
	//   1 in a slot of 512ms that comes up at 512ms
	// at 30ms
	// B expires
	//   1 in a slot of 512ms that comes up at 512ms
	// at 512ms
	//   1 in a slot of 8ms that comes up at 1s
	// at 1s
	//   1 in a slot of 1ms that comes up at 1.003s
	// at 1.003s
	// C expires
}
