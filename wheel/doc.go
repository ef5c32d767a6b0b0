// Package wheel provides hierarchical timing wheels: containers of deadlines in which scheduling, rescheduling and
// cancelling cost the same few nanoseconds however many entries wait, and which hand over what has become due.
//
// A [Timer] runs tasks after delays, for any goroutine, as Netty's HashedWheelTimer does:
//
//	timer, err := wheel.NewTimer(wheel.TimerConfig{})
//	t, err := timer.NewTimeout(wheel.TaskFunc(func(*wheel.Timeout) { ... }), 30*time.Second)
//	t.Reset(30 * time.Second) // a heartbeat
//	left, err := timer.Stop()
//
// A [Wheel] is the core below it. It reads no clock and starts no goroutine; its caller passes the time in:
//
//	w, err := wheel.New[string](100*time.Millisecond, 1024)
//	h := w.Schedule(2*time.Second, "close session 7") // an instant, counted from the caller's origin
//	h = w.Reschedule(h, 5*time.Second)
//	w.Advance(now, math.MaxInt, func(h wheel.Handle, session string) { ... })
//
// # Where an entry lies
//
// A Wheel with 8 slots that has reached tick 19. Each slot shows the tick at which it comes up; * is where the hand stands.
//
//	slot       0     1     2     3     4     5     6     7  ...    63
//
//	ring 0    24    25    26     *    20    21   22 A   23                 1
//	ring 1   512   520     *   24 B   32    40    48    56  ...   504      8
//	ring 2     *  512 C 1024  1536  2048  2560  3072  3584  ... 32256    512
//	                                                         ticks per slot
//
//	entry   due    lies in          until the hand reaches
//	A         22   ring 0, slot 6      22   and expires
//	B         30   ring 1, slot 3      24   and comes down to
//	               ring 0, slot 6      30   and expires
//	C       1003   ring 2, slot 1     512   and comes down to
//	               ring 1, slot 61   1000   and comes down to
//	               ring 0, slot 3    1003   and expires
//
// The example of [Wheel.Slots] shows the same.
//
// # Ownership
//
// A Wheel is not safe for concurrent use; the goroutine that calls Advance owns the Wheel. A Timer is safe for concurrent
// use: it has a wheel per processor, each behind a lock, and one goroutine that advances them all. NewTimeout, Cancel and
// Reset to later take no lock: one compare-and-swap of the Timeout decides between them and its expiry, and what is new or
// cancelled waits on a stack until it is brought into the wheel, or out of it, 15 at a time.
//
//	any goroutine           for each processor              one goroutine
//	                    +--------------------------+
//	NewTimeout -------> | stack of new ones --+    |
//	                    |                     +-> wheel -> runs what is due,
//	Cancel -----------> | stack of cancelled -+    |        or gives it to
//	                    +--------------------------+        the Executor
//	Reset to later ---> a store into the Timeout: the wheel finds it out
//	                    when the slot of the old deadline comes up
//
// # Precision
//
// Never early; at most one tick late, plus the lateness of the caller of Advance. A deadline is rounded up to the next
// multiple of the tick, and an entry is handed over by the first Advance whose now has reached that multiple. Rounding
// the other way fires up to one tick early, which for a reaper of connections is a live one cut off.
//
// A Timer sleeps by a timer of the Go runtime, which on a busy machine is some milliseconds late: a tick of 1 ms does not buy
// a lateness of 1 ms. Deadlines are on the monotonic clock, which on Linux stands still while the system is suspended.
//
// # Algorithm
//
// Schemes 6 and 7 of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987: a ring of slots with unsorted
// lists, one slot per tick, their number a power of two, and above it rings of 64 slots, each slot as long as a turn of
// the ring below. An entry lies in the lowest ring that reaches its deadline and comes down when its slot comes up. Rings
// are made when a deadline needs them: at a tick of 1 ms and with 1024 slots a day needs three above the lowest, and is
// looked at four times. There is one type for short and long ranges: within the lowest ring, the hierarchy is one
// comparison, and BenchmarkLayout shows no difference to a wheel without it (14 ns to cancel and schedule at 10,000).
//
// # What differs from the paper
//
// Four things.
//
// Deadlines are absolute: there are no rounds to count down, and a late Advance needs no repair.
//
// A reschedule to a later deadline only stores it. The entry stays in its slot, and when that slot comes up it is filed
// anew, as tokio and pingora do it: one cache line is touched instead of the four of unlinking and linking.
//
// Slots hold 32-bit ids in blocks of one cache line, and entries lie in slabs, so that the wheel itself holds no pointer
// for the garbage collector to follow (a payload type with pointers brings its own). A [Handle] is the id and a
// generation: one of an entry that has fired or was cancelled is harmless for ever after, until the generation of that
// id has gone round 2^31 times.
//
// While a block is emptied, the processor is asked to fetch the entries of the next one. This takes an instruction that Go
// has no word for, hence a few lines of assembly on amd64 and arm64; elsewhere expiry is slower and otherwise the same.
//
// # Cost
//
// 12 bytes and the payload per entry (they lie in pairs, so that there is no padding), 4.3 bytes for its place in a slot, 8
// bytes and 1 bit per slot. No operation of a Wheel allocates, but for growth beyond the largest number of entries so far:
// slabs come in pieces and never move, so growth copies nothing.
//
// A pending Timeout of a Timer is an allocation of 48 bytes and 8.5 bytes for its place in a slot. The slots hold the
// Timeouts themselves, and a cancelled one is taken out soon, since its task may hold any amount of memory.
//
// Cancel of a Wheel leaves the id in its slot, where it costs as much as a pending entry until a Schedule takes its place
// over, or the slot comes up. Cancelled entries never outnumber the pending by much more than 1,024: beyond that, a Schedule
// that would need a new place looks through some 60 ids first. [Wheel.Purge] makes all of them reusable at once.
//
// # Measurements
//
// Measured on 2026-11-21, AMD EPYC, 2 cores, Go 1.26: go test -run '^$' -bench 'Layout|Reschedule' ./wheel, about six minutes.
// The textbook layout is a doubly linked list whose pointers are embedded in separately allocated owners. The tables of bench
// are higher (93 ns to reschedule at a million), since they count what the caller pays to read its handles in random order.
//
//	                               this    textbook   time.Timer
//	reschedule, 10,000           3.7 ns                     42 ns
//	reschedule, 100,000          4.6 ns                    174 ns
//	reschedule, 1,000,000      15 to 32 ns    91 ns        285 ns and more
//	cancel and schedule, 1M       79 ns       93 ns
//	expire, per entry, 1M         15 ns      167 ns
//	file anew, per entry, 1M      18 ns
//
// What is weak: at a million entries every access is a miss of the cache, and other users of the machine decide what
// that costs. Where repeated rescheduling has brought the ids of a slot into random order, expiry and filing anew took 26 to
// 50 ns (BenchmarkDue). Only figures of one run compare.
package wheel
