package idle

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"

	"github.com/idlewheel/idlewheel/internal/watch"
)

// A simKind selects the faults of a world.
type simKind uint8

const (
	simAnything   simKind = iota
	simNetworkOut         // the server's own network is down for less than one timeout
	simPause              // the machine is paused, once
	simCalm               // no faults
)

// A simWorld is a server with its kernel, its network and its peers in virtual time. One goroutine
// runs all of it, and the same seed gives the same world.
type simWorld struct {
	seed    uint64
	rng     *rand.Rand
	kind    simKind
	cfg     Config
	checked watch.Config
	family  simFamily
	jiffy   time.Duration
	reaper  *Reaper
	horizon time.Duration

	now     time.Duration
	seq     uint64
	physics simQueue // of the kernel, the network and the peers
	process simQueue // of the server; waits while the process is stopped

	loops    []*simLoop
	fds      []bool // in use
	all      []*simLife
	open     int
	driver   *driver
	roundDue time.Duration // the next multiple of the tick, at which the driver should run
	plannedN uint64        // number of the planned round; earlier ones are void
	soon     bool          // an early round is planned
	asked    *simLife      // the subject of the last question, until the clock is read again
	inRound  bool
	inStop   bool
	locked   bool // handlers must not call methods that lock

	faulty      bool
	readsToStop int
	longest     time.Duration // longest limit
	loss        float64
	netDown     simInterval
	acksDown    simInterval
	driverAway  simIntervals
	lateRounds  simIntervals // the same, separated by rounds of the driver
	netAway     simIntervals // outages of the server's network that must be recognised
	holds       simIntervals
	holding     time.Duration // all connections are silent since then, 0 if there is no hold
	heardAt     time.Duration // last read
	heardThen   time.Duration // heardAt at the last round but one
	heardRound  time.Duration // heardAt at the last round
	drain       struct{ at, done, deadline time.Duration }

	leaves, busyHandler, keeps, decides bool
	slow                                time.Duration
	reply, greeting                     int

	shedsMore bool          // one call has not closed enough connections for the total of output
	overSince time.Duration // all connections have more output than the total since then, or 0

	failure *simViolation
	traced  *int // the connection to trace
	lines   []string
	simCounts
}

// simCounts are the counts of a world for the report.
type simCounts struct {
	lives, events, refused  int
	reaps                   watch.Reasons
	eofs, errs, timerCalls  int
	stops, pauses, netDowns int
	totals                  int // connections that were closed because of the total of output
	held                    uint64
	faultyLives             int
}

// A simViolation is a broken promise.
type simViolation struct {
	life               *simLife
	promised, happened string
}

func (w *simWorld) violate(l *simLife, promised, happened string) {
	if w.failure == nil {
		w.failure = &simViolation{l, promised, happened}
		w.trace(l, "VIOLATION: promised: "+promised+"; "+happened)
	}
}

// trace records an event of the traced connection or of the server.
func (w *simWorld) trace(l *simLife, what ...any) {
	if w.traced == nil || l != nil && l.id != *w.traced {
		return
	}
	subject := "server"
	if l != nil {
		subject = fmt.Sprintf("conn %d", l.id)
	}
	w.lines = append(w.lines, fmt.Sprintf("%14v %-8s ", w.now, subject)+strings.TrimSpace(fmt.Sprintln(what...)))
}

// one reports true once in n calls on average.
func (w *simWorld) one(n int) bool { return w.rng.IntN(n) == 0 }

func (w *simWorld) upTo(d time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(max(d, 1)))) + 1
}

// skewed returns a duration between two others. Each order of magnitude is equally likely.
func (w *simWorld) skewed(from, to time.Duration) time.Duration {
	f := float64(from) * math.Pow(float64(to)/float64(from), w.rng.Float64())
	return time.Duration(f)
}

// limit returns a timeout.
func (w *simWorld) limit() time.Duration {
	return w.skewed(200*time.Millisecond, 5*time.Second).Round(time.Millisecond)
}

// after plans an event of the kernel, the network or a peer.
func (w *simWorld) after(d time.Duration, do func()) {
	w.seq++
	w.physics.push(simEvent{w.now + d, w.seq, do})
}

// later plans an action of the server's process.
func (w *simWorld) later(at time.Duration, do func()) {
	w.seq++
	w.process.push(simEvent{at, w.seq, do})
}

// pass passes time in which the server's process does nothing else.
func (w *simWorld) pass(d time.Duration) {
	until := w.now + d
	for {
		at, ok := w.physics.next()
		if !ok || at > until {
			break
		}
		w.now = max(w.now, at)
		w.physics.pop().do()
	}
	w.now = until
}

// sleep passes time in which the other threads of the process run.
func (w *simWorld) sleep(d time.Duration) {
	until := w.now + d
	for w.failure == nil {
		p, isPhysics := w.physics.next()
		c, isProcess := w.process.next()
		queue, at := &w.physics, p
		if !isPhysics || isProcess && c < p {
			queue, at = &w.process, c
		}
		if !isPhysics && !isProcess || at > until {
			break
		}
		w.now = max(w.now, at)
		queue.pop().do()
		w.pollMore()
	}
	w.now = max(w.now, until)
}

// elapsed is the clock of the Reaper.
func (w *simWorld) elapsed() time.Duration {
	w.pass(50 * time.Nanosecond)
	at := w.now
	if w.readsToStop--; w.readsToStop == 0 && w.faulty && w.now < w.horizon {
		w.readsToStop = 1 + w.rng.IntN(20000)
		w.stop(w.stopLength(), w.one(4))
		if w.one(2) {
			at = w.now // half of the stops come before the reading, half after it
		}
	}
	if l := w.asked; l != nil { // the Reaper cannot know how old the answer is
		if w.asked = nil; w.now-l.judged > time.Millisecond {
			l.now.anySent = w.now
		}
	}
	return at
}

func (w *simWorld) stopLength() time.Duration {
	switch w.rng.IntN(3) {
	case 0:
		return w.upTo(5 * w.cfg.Tick)
	case 1:
		return w.upTo(w.longest)
	default:
		return w.upTo(3 * w.longest)
	}
}

// ask answers a question of the Reaper about a descriptor.
func (w *simWorld) ask(fd int, ev *verdict.Evidence) {
	c := w.aboutToAsk(fd)
	if c == nil {
		*ev = verdict.Evidence{Found: verdict.Ended, Queued: -1}
		return
	}
	c.sock.answer(ev)
	w.watchHold()
	c.sock.life.question()
	w.asked = c.sock.life
	w.trace(c.sock.life, "asked:", ev.Found, ev.Silent, ev.Quiet, ev.Queued)
	if w.faulty && w.one(200) {
		w.readsToStop = 1 + w.rng.IntN(3)
	}
}

// holdsOutput takes the place of kernel.HoldsOutput.
func (w *simWorld) holdsOutput(fd int) bool {
	c := w.aboutToAsk(fd)
	return c == nil || c.sock.w.family != simBSD && c.sock.outstanding() > 0
}

// aboutToAsk returns the connection of a descriptor. The process may be stopped before the
// question.
func (w *simWorld) aboutToAsk(fd int) *simConn {
	if c := w.connOf(fd); c != nil {
		c.sock.life.askedFrom = w.now
	}
	w.pass(time.Microsecond)
	if w.faulty && w.one(300) && w.now < w.horizon {
		w.stop(w.stopLength(), w.one(4))
	}
	c := w.connOf(fd)
	if c == nil {
		w.violate(nil, "only open descriptors are asked about", fmt.Sprintf("descriptor %d is closed", fd))
	}
	return c
}

func (w *simWorld) connOf(fd int) *simConn {
	for _, el := range w.loops {
		if c := el.conns[fd]; c != nil {
			return c
		}
	}
	return nil
}

// stop stops the process for a time. During a pause, packets are lost as well.
func (w *simWorld) stop(d time.Duration, paused bool) {
	if w.inStop {
		return
	}
	w.inStop = true
	from := w.now
	w.stops++
	w.trace(nil, "stopped for", d, "paused:", paused)
	if paused {
		w.pauses++
		w.netDown = simInterval{from, from + d}
	}
	w.driverAway.add(from, from+d)
	w.pass(d)
	w.inStop = false
	if !w.inRound && w.reaper != nil && w.one(2) && isFree(&w.reaper.mu) && isFree(watcherMutex(w.reaper)) {
		w.sleep(0) // the other threads run first
	}
}

// isLost reports whether the network drops a packet now.
func (w *simWorld) isLost(*simSock) bool {
	if w.family == simUnix {
		return false
	}
	return w.now < w.netDown.to && w.now >= w.netDown.from || w.loss > 0 && w.rng.Float64() < w.loss
}

func (w *simWorld) acksAreLost() bool {
	return w.family != simUnix && w.now < w.acksDown.to && w.now >= w.acksDown.from
}

func (w *simWorld) refusesTask() bool { return w.faulty && w.one(200) }

// startDriver takes the place of the driver's goroutine.
func (w *simWorld) startDriver(d *driver) {
	close(d.done)
	w.driver = d
	w.roundDue = (w.now/w.cfg.Tick + 1) * w.cfg.Tick
	w.planRound(w.roundDue)
}

func (w *simWorld) planRound(at time.Duration) {
	w.plannedN++
	n, d := w.plannedN, w.driver
	if w.faulty && w.one(100) {
		at += w.lateness()
	}
	w.later(at, func() {
		if n == w.plannedN && d == w.reaper.driver {
			w.round()
		}
	})
}

// lateness returns a random lateness of the driver.
func (w *simWorld) lateness() time.Duration {
	if w.one(4) {
		return w.upTo(w.longest)
	}
	return w.upTo(4 * w.cfg.Tick)
}

// round is one round of the driver.
func (w *simWorld) round() {
	if w.now-w.roundDue > time.Millisecond {
		w.trace(nil, "driver is late by", w.now-w.roundDue)
		w.driverAway.add(w.roundDue, w.now)
		w.lateRounds.add(w.roundDue, w.now)
	}
	w.heardThen, w.heardRound = w.heardRound, w.heardAt
	w.inRound = true
	before := w.reaper.Stats().OutageTime
	w.reaper.round()
	w.inRound = false
	w.watchOutput()
	w.watchSilence(w.reaper.Stats().OutageTime - before)
	w.watchHold()
	w.roundDue = (w.now/w.cfg.Tick + 1) * w.cfg.Tick
	w.soon = false
	w.planRound(w.roundDue)
}

// pollMore takes the place of the driver's wait for loops that need another round.
func (w *simWorld) pollMore() {
	if w.reaper != nil {
		w.watchHold()
	}
	if w.soon || w.reaper == nil || w.reaper.driver == nil || len(w.reaper.more) == 0 {
		return
	}
	<-w.reaper.more
	w.soon = true
	w.planRound(min(w.now+pause, max(w.roundDue, w.now)))
}

// watchHold records holds of verdicts, and checks that they are allowed.
func (w *simWorld) watchHold() {
	held := w.reaper.watch.Outages().Held()
	switch {
	case held && w.holding == 0:
		w.holding = w.heardThen
		w.trace(nil, "verdicts are held, all silent since", w.heardAt)
		if len(w.all) < 16 || w.grace() < 0 {
			w.violate(nil, "no hold with fewer than 16 connections or without a grace", "verdicts are held")
		}
	case !held && w.holding != 0:
		w.trace(nil, "verdicts are no longer held")
		w.holds.add(w.holding, w.now)
		w.holding = 0
	}
}

// watchSilence records an outage that the Reaper has found in a round. If the driver was not away,
// the outage was a hold that began and ended between two checks.
func (w *simWorld) watchSilence(length time.Duration) {
	known, n := w.driverAway.overlap(w.now-length, w.now)
	if length == 0 || known+time.Duration(2*n)*w.cfg.Tick >= length {
		return
	}
	w.trace(nil, "a silence was an outage of", length)
	w.holds.add(w.now-length, w.now)
	if len(w.all) < 16 || w.grace() < 0 {
		w.violate(nil, "no hold with fewer than 16 connections or without a grace", "a silence was an outage")
	}
}

// mayHold reports whether verdicts may have been held after an instant.
func (w *simWorld) mayHold(since time.Duration) bool {
	if w.holding != 0 {
		return true
	}
	n := len(w.holds)
	return n > 0 && w.holds[n-1].to > since
}

// wasOut returns the outages that certainly counted at a verdict.
func (w *simWorld) wasOut(judged time.Duration) (all simIntervals) {
	for _, o := range w.lateRounds {
		if o.from < judged {
			all = append(all, simInterval{o.from, min(o.to, judged)})
		}
	}
	if w.driver != nil && judged > w.roundDue {
		all.add(w.roundDue, judged)
	}
	for _, o := range w.netAway {
		if o.to <= judged {
			all = append(all, o)
		} else if o.from < judged {
			all = append(all, simInterval{o.from, judged + w.cfg.Tick})
		}
	}
	return all.merged(0, w.least())
}

// mayBeOut returns the outages that may count.
func (w *simWorld) mayBeOut() simIntervals {
	all := append(simIntervals(nil), w.driverAway...)
	if w.driver != nil && w.now > w.roundDue {
		all.add(w.roundDue, w.now)
	}
	holds := w.holds
	if w.holding != 0 {
		holds = append(append(simIntervals(nil), holds...), simInterval{w.holding, w.now})
	}
	if len(holds) > 0 {
		all = append(all, holds...)
		sortIntervals(all)
	}
	return all.merged(3*w.cfg.Tick, time.Millisecond)
}

func (w *simWorld) takeFD() int {
	for fd, used := range w.fds {
		if !used {
			w.fds[fd] = true
			return fd
		}
	}
	w.fds = append(w.fds, true)
	return len(w.fds) - 1
}

func (w *simWorld) freeFD(fd int) { w.fds[fd] = false }
