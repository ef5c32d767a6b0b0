// Package wheel provides hierarchical timing wheels: containers of deadlines that expire entries
// when they are due. Scheduling, rescheduling and cancelling take a few nanoseconds, however many
// entries are pending.
//
// A [Timer] runs tasks after delays, for any goroutine, as Netty's HashedWheelTimer does:
//
//	timer, err := wheel.NewTimer(wheel.TimerConfig{})
//	t, err := timer.NewTimeout(wheel.TaskFunc(func(*wheel.Timeout) { ... }), 30*time.Second)
//	t.Reset(30 * time.Second) // a heartbeat
//	left, err := timer.Stop()
//
// A [Wheel] is the core of a Timer. It reads no clock and starts no goroutine; its caller passes
// the time:
//
//	w, err := wheel.New[string](100*time.Millisecond, 1024)
//	h := w.Schedule(2*time.Second, "close session 7") // an instant, counted from the caller's origin
//	h = w.Reschedule(h, 5*time.Second)
//	w.Advance(now, math.MaxInt, func(h wheel.Handle, session string) { ... })
//
// # Where an entry lies
//
// This Wheel has 8 slots and has reached tick 19. Each slot shows the tick at which it comes up; *
// marks the position of the hand.
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
// The example of [Wheel.Slots] prints this Wheel.
//
// # Ownership
//
// A Wheel is not safe for concurrent use; the goroutine that calls Advance owns the Wheel. A Timer
// is safe for concurrent use: it has a wheel per processor, each behind a lock, and one goroutine
// that advances all of them. NewTimeout, Cancel and a Reset to a later deadline take no lock: one
// compare-and-swap decides between them and the expiry. New and cancelled Timeouts wait on a stack.
// They are added to the wheel, or removed from it, 15 at a time.
//
//	any goroutine           for each processor              one goroutine
//	                    +--------------------------+
//	NewTimeout -------> | stack of new ones --+    |
//	                    |                     +-> wheel -> runs what is due,
//	Cancel -----------> | stack of cancelled -+    |        or gives it to
//	                    +--------------------------+        the Executor
//	Reset to later ---> a store into the Timeout: the wheel reads it
//	                    when the slot of the old deadline comes up
//
// # Precision
//
// Never early; at most one tick late, plus the lateness of the caller of Advance. A deadline is
// rounded up to the next multiple of the tick, and the first Advance at or after that multiple
// expires the entry. Rounding down would expire up to one tick early, and a reaper of connections
// would close a live one.
//
// A Timer sleeps on a timer of the Go runtime, which is some milliseconds late on a busy machine: a
// tick of 1 ms does not guarantee a lateness of 1 ms. Deadlines are on the monotonic clock, which
// on Linux stands still while the system is suspended.
//
// # Algorithm
//
// Schemes 6 and 7 of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987: a ring
// of slots with unsorted lists, one slot per tick, their number a power of two. Above it are rings
// of 64 slots, in which each slot is as long as a turn of the ring below. An entry lies in the
// lowest ring that reaches its deadline and moves down when its slot comes up. A ring is allocated
// when a deadline needs it: with a tick of 1 ms and 1024 slots, a deadline in a day needs three
// rings above the lowest and is filed four times. One type serves short and long ranges: in the
// lowest ring the hierarchy costs one comparison, and BenchmarkLayout shows no difference to a
// wheel without it (14 ns to cancel and schedule at 10,000).
//
// # Differences from the paper
//
// Deadlines are absolute. There are no rounds to count down, and a late Advance needs no
// correction.
//
// A reschedule to a later deadline only stores it. The entry stays in its slot and is filed again
// when that slot comes up, as in tokio and pingora. This touches one cache line; unlinking and
// linking touches four.
//
// Slots hold 32-bit ids in blocks of one cache line, and entries lie in slabs, so that the wheel
// itself has no pointers for the garbage collector to follow (a payload type may have pointers). A
// [Handle] is an id and a generation. The Handle of an entry that has expired or was cancelled
// matches no other entry, until its id has been used 2^31 times more.
//
// While Advance empties a block, the processor prefetches the entries of the next one. Go has no
// function for this instruction, so amd64 and arm64 have a few lines of assembly. On other
// processors expiry is slower.
//
// # Cost
//
// A Wheel uses 12 bytes and the payload per entry (entries lie in pairs, so that there is no
// padding), 4.3 bytes for its place in a slot, and 8 bytes and 1 bit per slot. Operations allocate
// only to grow beyond the largest number of entries so far. Slabs are allocated in pieces and never
// move, so growth copies nothing.
//
// A pending Timeout of a Timer uses an allocation of 48 bytes and 8.5 bytes for its place in a
// slot. The slots point to the Timeouts. A cancelled Timeout is removed soon, because its task may
// hold any amount of memory.
//
// Cancel of a Wheel leaves the id in its slot. It uses as much memory as a pending entry until a
// Schedule reuses its place, or the slot comes up. Cancelled entries exceed the pending ones by
// little more than 1,024: above that, a Schedule that needs a new place scans some 60 ids first.
// [Wheel.Purge] makes all of them reusable at once.
//
// # Measurements
//
// Measured on 2026-11-21, AMD EPYC, 2 cores, Go 1.26: go test -run '^$' -bench 'Layout|Reschedule'
// ./wheel, about six minutes. The textbook layout is a doubly linked list with pointers that are
// embedded in separately allocated owners. The tables of bench are higher (93 ns to reschedule at a
// million), since they include the time that the caller needs to read its handles in random order.
//
//	                               this    textbook   time.Timer
//	reschedule, 10,000           3.7 ns                     42 ns
//	reschedule, 100,000          4.6 ns                    174 ns
//	reschedule, 1,000,000      15 to 32 ns    91 ns        285 ns and more
//	cancel and schedule, 1M       79 ns       93 ns
//	expire, per entry, 1M         15 ns      167 ns
//	file again, per entry, 1M     18 ns
//
// At a million entries every access misses the cache, and its cost depends on other tenants of the
// machine. If repeated rescheduling has brought the ids of a slot into random order, expiry and
// filing again take 26 to 50 ns (BenchmarkDue). Compare only figures of one run.
package wheel
