// Package wheel provides a hierarchical timing wheel: a container of deadlines that expires entries
// when they are due. Scheduling, rescheduling and cancelling take constant time, however many
// entries are pending.
//
// A [Wheel] reads no clock and starts no goroutine; its caller passes the time:
//
//	w, err := wheel.New[string](100*time.Millisecond)
//	h := w.Schedule(2*time.Second, "close session 7") // 2 s after the caller's origin
//	w.Reschedule(h, 5*time.Second)
//	w.Advance(now, math.MaxInt, func(h wheel.Handle, session string) { ... })
//
// # Where an entry lies
//
// This Wheel has reached tick 75. Each slot shows the tick at which it comes up; * marks a slot
// that is not used now, since its ticks are over or lie in the level below.
//
//	slot       0     1     2     3  ...    11    12  ...    16  ...    63
//
//	level 0    *     *     *     *  ...     *    76  ...  80 A  ...   127       1
//	level 1    *     *   128 192 B  ...   704   768  ...  1024  ...  4032      64
//	level 2    *  4096 8192 C 12288  ... 45056 49152  ... 65536  ... 258048   4096
//	                                                              ticks per slot
//
//	entry   due    lies in            until the Wheel reaches
//	A         80   level 0, slot 16     80   and expires
//	B        200   level 1, slot 3     192   and moves down to
//	               level 0, slot 8     200   and expires
//	C       9000   level 2, slot 2    8192   and moves down to
//	               level 1, slot 12   8960   and moves down to
//	               level 0, slot 40   9000   and expires
//
// The example of [Wheel.Slots] prints this Wheel.
//
// # Ownership
//
// A Wheel is not safe for concurrent use; the goroutine that calls Advance owns the Wheel.
//
// # Precision
//
// Never early; at most one tick late, plus the lateness of the caller of Advance. A deadline is
// rounded up to the next multiple of the tick, and the first Advance at or after that multiple
// expires the entry. Rounding down would expire up to one tick early, and a reaper of connections
// would close a live one.
//
// # Algorithm
//
// Scheme 7 of Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987: levels of
// slots with unsorted lists. A slot is as long as all slots of the level below together. An entry
// moves down when its slot comes up.
//
// A tick is a number of 63 bits, and a level stands for a group of 6 of them. As in the timer of
// tokio, the level of an entry is the highest group in which its tick differs from the tick that
// the Wheel has reached; the value of the group is the slot. So the slots of a level come up in the
// order of their numbers, and all slots of a level before those of the level above. A level has 64
// slots, and one word has a bit for each occupied one. The next slot is the first bit that is set:
// Advance goes from one occupied slot to the next and never scans.
//
// The eleven levels cover all instants. They are part of the Wheel and take 3 KB.
//
// # Differences from the paper
//
// Deadlines are absolute, so a late Advance needs no correction. The cursor passes all levels at
// once, while a Wheel of the paper turns each level by the one below.
//
// A reschedule only stores the deadline, unless the slot of the entry comes up too late for it. The
// entry is filed again when its slot comes up. This touches 16 bytes of the entry; to unlink and
// link it also touches three neighbours.
//
// Entries lie in slabs that never move, and are linked by 32-bit ids, so that the garbage collector
// has no pointers to follow (a payload type may have pointers). A [Handle] is an id and a
// generation. The Handle of an entry that has expired or was cancelled matches no other entry,
// until its id has been used 2^31 times more.
//
// # Cost
//
// A Wheel uses 24 bytes and the payload per entry, whether its deadlines lie close together or far
// apart. Cancel takes the entry out of its slot, and the next Schedule uses its memory again.
// Operations allocate only to grow beyond the largest number of entries so far, 512 entries at a
// time. Growth copies no entry. A Wheel does not give memory back.
//
// An entry is filed once when it is scheduled, once for each level that it moves down, and once for
// each time that its slot comes up after a later deadline was stored. With a tick of 100 ms, an
// entry that is due in a minute moves down at most once, one that is due in a day three times.
// The program in bench/ compares Reschedule with the Reset of a time.Timer.
package wheel
