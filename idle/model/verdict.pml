/*
 * A model of the decision that a connection is read idle, for the model checker Spin 6.5.
 *
 * Real time, the peer, the driver and the event loop of one connection run concurrently. Spin
 * visits every interleaving of their steps. Time may pass between any two steps, so that a late
 * driver, a blocked loop and a stopped process are among the runs. Steps of the code are one step
 * of the model if no other process can observe their order.
 *
 * Modelled, with the Go code in package idle that each part stands for:
 *   clock     the tick number, the recorded times of its moves, and a move in its steps
 *             (clock.move)
 *   driver    one round per tick: move the clock, read the due time, claim and post a task (round)
 *   stamp     bytes wait in the kernel, are read, and the handler returns: the stamp is the tick
 *             number of that moment, and the deadline in the wheel stays (OnTraffic)
 *   task      read the wheel, judge by the coarse clock, file the entry again if the deadline
 *             has not passed, publish the next due time, clear the posted flag (run, judgeDue)
 *   question  read the real clock, ask the kernel for unread bytes, judge again, close (decide,
 *             learn)
 *   polling   another limit has the kernel asked at every tick, although no deadline has passed by
 *             the coarse clock (asks). Spin checks runs with and without it.
 *
 * Left out: the dates that the kernel gives to bytes of TCP, so this is a unix socket; more than
 * one connection or loop; the time budget of a task and Wake; FIN, reset and OnIdle;
 * jitter; other limits and their change; a tick number that wraps; the length of the clock's ring;
 * an Execute that fails. The wheel is one entry with one deadline, rounded up to a tick. Memory is
 * sequentially consistent, as it is for Go's atomics.
 *
 * Checked in every state that is reachable before HORIZON, if work is left for STOPS units in
 * total:
 *   1 never early    When the connection is closed, the last byte that reached the kernel before
 *                    the question is at least TIMEOUT old by the reading of the clock before the
 *                    question.
 *   2 never kept     An open connection is silent for at most TIMEOUT and two ticks, not counting
 *                    the time in which the driver or the loop leaves work (LATE). Needs -DKEPT,
 *                    which leaves property 1 out: two small models are checked faster than one
 *                    large one.
 *   3 no lost task   If the driver finds something due and the posted flag set, a task is on its
 *                    way. It posts none while another one is. When the driver sleeps and the loop
 *                    has nothing to do, the published due time is that of the wheel.
 * There is no deadlock: a process blocks only at the label "end".
 *
 * check.sh runs all of it. One variant by hand, the shortest trail of a fault first:
 *   spin -a -DNO_QUESTION verdict.pml && cc -O2 -DSAFETY -DBFS -o pan pan.c && ./pan
 *   spin -t -T -DNO_QUESTION verdict.pml
 *   spin -a verdict.pml && cc -O2 -DSAFETY -o pan pan.c && ./pan -m10000
 *
 * Faults, each behind a macro. Spin must find them.
 *   ASSUME_NEXT_TICK   bounds the current stamp by the last move and a tick, as if the next move
 *                      came in time. The default bounds it by the real time of the judgement.
 *   TENTATIVE_BOUND    bounds a stamp by the next move as soon as the number is published. The
 *                      time that was stored before may be older than the bytes. The default waits
 *                      for the second store (settled), and bounds by the time of the judgement
 *                      until then.
 *   STAMP_LOWER_BOUND  takes the beginning of the tick of the stamp for the time of the bytes.
 *   NO_QUESTION        does not ask the kernel for unread bytes.
 *   LOST_TASK          sets the posted flag before it checks whether something is due.
 *   CLEARED_FIRST      clears the posted flag before it publishes the due time. No work is lost by
 *                      that, since the due time is a level and not an edge: a second task is
 *                      posted.
 *   UNPUBLISHED        does not publish the due time of an entry that was filed again.
 * The first two need polling: by the coarse clock alone, a bound that is at least the time of the
 * last move is never TIMEOUT old.
 *
 * Witnesses. Spin must find them as well, or a run without errors would be one without events.
 *   NEVER_CLOSED       claims that no connection is closed.
 *   NEVER_SAVED        claims that no connection is saved by unread bytes.
 *   ALLOWED=n          sets the bound of property 2; TIMEOUT and one tick is too little.
 */

/* Times are in units of half a tick, counted from the opening of the connection. */
#ifndef TICK
#define TICK 2
#endif
#ifndef TIMEOUT
#define TIMEOUT (2 * TICK)
#endif
#ifndef HORIZON
#define HORIZON 12
#endif
#ifndef STOPS
#define STOPS 6
#endif
#ifndef ALLOWED
#define ALLOWED (TIMEOUT + 2 * TICK)
#endif

#define MOVES (HORIZON / TICK + 2)
#define NEVER 255
#define ROUND_UP(t) (((t) + TICK - 1) / TICK * TICK)

byte real;                /* what a reading of the real clock returns */
bool open = true;

/* Kernel. */
bool unread;              /* bytes wait in the socket */

/* Clock. The driver writes it. */
byte number;              /* of moves */
byte at[MOVES];           /* the time of each move */
byte settled;             /* the moves up to this one have their second and final time */

/* Loop. The first two are its own, the driver reads and writes the others. */
byte stamp;               /* the tick number of the last read */
byte due = NEVER;         /* when the wheel needs a task */
byte dueAt = NEVER;       /* published copy of due */
bool posted;              /* the driver posts no task while it is set */
byte queue;               /* tasks that the loop has not begun */

bool asks;                /* another limit has the kernel asked at every tick */

/* For the properties only. The code knows nothing of these. */
bool inRound, inHandler, inTask;
bool deciding;            /* the task is between its reading of the clock and its verdict */
byte stops = STOPS;       /* what is left of the time that may pass while work is left */
byte wake = TICK;         /* when the timer of the driver fires */
#ifdef KEPT
byte silence;             /* time since the last byte in which nothing was late */
#else
byte arrived;             /* when the last byte reached the kernel; TIMEOUT ago if it is older */
#endif

#define LATE (real >= wake || inRound || inHandler || inTask || queue > 0 || unread)

/* Time passes at any point. While work is left it passes for STOPS units in total. */
proctype Time() {
end:
	do
	:: atomic {
		open && real < HORIZON && (!LATE || stops > 0) ->
		if
		:: LATE -> stops--
		:: else ->
#ifdef KEPT
			silence++;
			assert(silence <= ALLOWED); /* never kept */
#endif
			assert(dueAt == due)
		fi;
		real++;
#ifndef KEPT
		if
		:: real > arrived + TIMEOUT && !deciding -> arrived = real - TIMEOUT
		:: else
		fi
#endif
	}
	od
}

/* The peer sends at any time, or nothing any more. The opening counts as a byte. */
proctype Peer() {
end:
	do
	:: atomic {
#ifdef KEPT
		open && real < HORIZON && !(unread && silence == 0) ->
		silence = 0;
#else
		open && real < HORIZON && !(unread && arrived == real) ->
		arrived = real;
#endif
		unread = true;
		printf("%d peer: bytes reach the kernel\n", real)
	}
	od
}

/* Clears the moves that no bound depends on any more, so that Spin sees equal states as equal. A
 * bound depends on the move after the stamp. clock.stamp depends on the last two moves, and on the
 * moves after the reading of the clock that it is given. */
inline forget(i) {
	i = 0;
	do
	:: i < number ->
		if
		:: i < stamp || (i > stamp + 1 && i + 1 < number && !deciding) -> at[i] = 0
		:: else
		fi;
		i++
	:: else -> i = 0; break
	od
}

/* Sets the timer of the driver to the next multiple of the tick. */
inline sleep() {
	wake = (real / TICK + 1) * TICK;
	elapsed = 0;
	inRound = false
}

/* The driver moves the clock and posts a task if something is due. */
proctype Driver() {
	byte elapsed, i;
end:
	do
	:: atomic { open && real >= wake -> inRound = true; elapsed = real }

		/* clock.move */
		if
		:: elapsed / TICK > at[number] / TICK ->
			atomic {
				at[number + 1] = elapsed;
				number++;
				printf("%d driver: number %d is published, with the time %d\n", real, number, elapsed)
			}
			elapsed = real;
			atomic {
				at[number] = elapsed;
				settled = number;
				forget(i);
				printf("%d driver: move %d is settled at %d\n", real, number, elapsed)
			}
		:: else
		fi;

		/* The rest of round. Only the driver writes at[number], so the due time is all that is read. */
#ifdef LOST_TASK
		atomic {
			if
			:: posted -> assert(queue > 0 || inTask); sleep(); goto end /* a task is on its way */
			:: else -> posted = true; printf("%d driver: sets posted\n", real)
			fi
		}
		atomic {
			if
			:: dueAt <= at[number] ->
				queue++;
				printf("%d driver: posts a task, due %d\n", real, dueAt)
			:: else
			fi;
			sleep()
		}
#else
		if
		:: atomic { dueAt > at[number] -> sleep() }
		:: dueAt <= at[number] ->
			atomic {
				if
				:: posted -> assert(queue > 0 || inTask) /* a task is on its way */
				:: else ->
					posted = true;
					assert(queue == 0 && !inTask); /* one task at a time */
					queue++;
					printf("%d driver: posts a task, due %d\n", real, dueAt)
				fi;
				sleep()
			}
		fi
#endif
	od
}

/* Files the entry again: rounded up to a tick, and after the tick that the wheel stands at. */
inline file(deadline) {
	d_step {
		due = ROUND_UP(deadline);
		if
		:: due <= coarse -> due = (coarse / TICK + 1) * TICK
		:: else
		fi
	}
}

/* clock.before: heard becomes an instant after which none of the bytes that were read has arrived.
 * The reading of the real clock that is given, now, is later than all reads of this loop. */
inline bound(now) {
#ifdef STAMP_LOWER_BOUND
	heard = at[stamp];
#else
#ifdef TENTATIVE_BOUND
	if
	:: stamp < number -> heard = at[stamp + 1]
#else
	if
	:: stamp < settled -> heard = at[stamp + 1]
#endif
#ifdef ASSUME_NEXT_TICK
	:: stamp == number -> heard = at[stamp] + TICK
#endif
	:: else -> heard = now
	fi;
#endif
}

/* clock.stamp: the last move that is not after the instant. */
inline stampOf(instant) {
	stamp = number;
	do
	:: stamp > 0 && at[stamp] > instant -> stamp--
	:: else -> break
	od
}

/* The event loop reads and runs tasks, in any order. */
proctype Loop() {
	byte i;      /* for forget */
	byte coarse; /* the time of the last move */
	byte now;    /* a reading of the real clock */
	byte heard;  /* the bytes that were read last have arrived no later */

end:
	do
	:: atomic { open && unread -> unread = false; inHandler = true; printf("%d loop: reads\n", real) }
		d_step {
			stamp = number;
			forget(i);
			inHandler = false;
			printf("%d loop: stamps %d\n", real, stamp)
		}

	:: atomic {
			open && queue > 0 ->
			queue--;
			inTask = true;
#ifdef CLEARED_FIRST
			posted = false;
#endif
			coarse = at[number];
			printf("%d task: begins, coarse time %d\n", real, coarse);
			if
			:: due > coarse -> goto publish
			:: else -> now = real
			fi
		}

		/* judgeDue: the verdict by the coarse clock. */
		atomic {
			bound(now);
			printf("%d task: stamp %d, heard by %d\n", real, stamp, heard);
			if
			:: heard + TIMEOUT > coarse && !asks -> file(heard + TIMEOUT); goto publish
			:: else
			fi
		}

		/* decide: the verdict by the real clock, after the question. */
		atomic { now = real; deciding = true }
		atomic {
			printf("%d task: asks at %d, unread %d\n", real, now, unread);
#ifndef NO_QUESTION
			if
			:: unread ->
#ifdef NEVER_SAVED
				assert(heard + TIMEOUT > now); /* not saved */
#endif
				heard = now;
				goto learn
			:: else
			fi;
#endif
			if
			:: heard + TIMEOUT > now -> goto again
			:: else
			fi;
#ifndef KEPT
			printf("%d task: closes, the last byte arrived at %d\n", real, arrived);
			assert(now >= arrived + TIMEOUT); /* never early */
#endif
#ifdef NEVER_CLOSED
			assert(!open); /* never closed */
#endif
			open = false;
			due = NEVER;
			goto publish
		}
learn:
		atomic {
			stampOf(now);
again:
			if
			:: asks && heard + TIMEOUT > now + TICK -> file(now + TICK)
			:: else -> file(heard + TIMEOUT)
			fi
		}
publish:
#ifdef UNPUBLISHED
		skip;
#else
		dueAt = due;
#endif
		atomic {
			posted = false;
			inTask = false;
			coarse = 0; now = 0; heard = 0; deciding = false;
			forget(i);
			printf("%d task: ends, due %d\n", real, due)
		}
	od
}

init {
	atomic {
		if
		:: asks = true; due = TICK
#ifdef ASSUME_NEXT_TICK
		:: due = TICK + TIMEOUT
#else
		:: due = TIMEOUT
#endif
		fi;
		dueAt = due;
		run Time();
		run Peer();
		run Driver();
		run Loop()
	}
}
