package idlenet

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/internal/watch"
)

// A simKind selects the faults of a world.
type simKind uint8

const (
	simAnything   simKind = iota
	simNetworkOut         // the server's own network is down for less than one timeout
	simCalm               // no faults
)

// A simWorld is a server with its kernel, its network and its peers in virtual time. One goroutine
// runs all of it, and the same seed gives the same world.
type simWorld struct {
	seed    uint64
	rng     *rand.Rand
	kind    simKind
	cfg     Config
	unix    bool // the kernel does not date bytes
	addr    net.Addr
	jiffy   time.Duration
	ln      *Listener
	inner   simListener
	horizon time.Duration

	now     time.Duration
	seq     uint64
	physics simQueue // of the kernel, the network and the peers
	process simQueue // of the server; waits while the process is stopped

	all      []*simLife
	closed   []*simLife // of all, those that are closed and still watched
	dropped  []*simLife // their addresses may be used again
	roundDue time.Duration
	plannedN uint64 // number of the planned round; earlier ones are void
	checked  watch.Config
	judging  bool
	inRound  bool
	inStop   bool
	ends     bool // no connection is accepted any more

	faulty      bool
	quiet       bool // no server closes by chance
	readsToStop int
	longest     time.Duration // longest limit
	loss        float64
	netDown     simInterval
	away        simIntervals  // the process was stopped, or the judge was late
	inspecting  bool          // no verdict follows a question to the kernel
	certain     simIntervals  // of away, those that must be recognised
	holds       simIntervals  // verdicts were held
	outages     *outage.State // of the monitor, so far
	readAt      time.Duration // the last reading of the clock
	spawnedAt   time.Duration // the running call was spawned then
	updatedAt   time.Duration
	observedTo  time.Duration // ObserveOnly was on until then
	drain       struct{ at, done, deadline time.Duration }

	decides   bool // there is an OnIdle
	slowCalls bool
	slowSince time.Duration // a call by the judge is slow since then, 0 if none is
	server    simManners

	failure *simViolation
	traced  *int // the connection to trace
	lines   []string
	simCounts
}

// simCounts are the counts of a world for the report.
type simCounts struct {
	lives, refused, events, pings, goodbyes  int
	reaps                                    watch.Reasons
	stops, pauses, netDowns, updates, reused int
	cut, told, raced                         int
	held                                     uint64
}

// A simViolation is a broken promise.
type simViolation struct {
	life               *simLife
	promised, happened string
}

// A simListener is a net.Listener with at most one connection.
type simListener struct {
	w    *simWorld
	next net.Conn
}

var errNoneWaits = errors.New("no connection waits")

func (l *simListener) Accept() (net.Conn, error) {
	c := l.next
	if l.next = nil; c == nil {
		return nil, errNoneWaits
	}
	return c, nil
}

func (l *simListener) Close() error   { return nil }
func (l *simListener) Addr() net.Addr { return l.w.addr }

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
	return time.Duration(float64(from) * math.Pow(float64(to)/float64(from), w.rng.Float64()))
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

// sleep passes time in which the other goroutines of the process run.
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
		w.pollWake()
	}
	w.now = max(w.now, until)
}

// elapsed is the clock of the Listener.
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
	w.readAt = at
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

// ask answers a question of the Listener about a connection.
func (w *simWorld) ask(c net.Conn, fresh time.Duration, ev *verdict.Evidence) (open bool) {
	l := w.lifeOf(c)
	l.calledFor("the kernel is asked")
	l.askedFrom = w.readAt
	w.pass(time.Microsecond)
	if w.faulty && w.one(300) && w.now < w.horizon {
		w.stop(w.stopLength(), w.one(4))
	}
	if l.sock.closed {
		return false
	}
	l.sock.answer(ev)
	if ev.Dated && ev.Received > 0 && ev.Silent < fresh {
		ev.Found = verdict.Nothing // not asked for
	}
	w.watchHold()
	if !w.inspecting { // otherwise no verdict follows
		l.question()
	}
	w.trace(l, "asked:", ev.Found, ev.Silent, ev.Quiet, ev.Queued)
	switch {
	case w.faulty && w.one(200):
		w.readsToStop = 1 + w.rng.IntN(3)
	case !w.quiet && w.one(500):
		l.serverCloses()
		w.raced++
	}
	return true
}

// lifeOf returns the connection that the Listener means.
func (w *simWorld) lifeOf(c net.Conn) *simLife {
	own, _ := root(c)
	return own.(*simConn).life
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
	w.away.add(from, from+d)
	if d >= w.least() {
		w.certain.add(from, from+d)
	}
	w.pass(d)
	w.inStop = false
}

// isLost reports whether the network drops a packet now.
func (w *simWorld) isLost() bool {
	if w.unix {
		return false
	}
	return w.now < w.netDown.to && w.now >= w.netDown.from || w.loss > 0 && w.rng.Float64() < w.loss
}

// startJudge takes the place of the goroutine that judges.
func (w *simWorld) startJudge() {
	if w.judging {
		w.violate(nil, "there is one goroutine that judges", "there are two")
	}
	w.judging = true
	w.planRound()
}

// spawn takes the place of the go statement.
func (w *simWorld) spawn(call func()) {
	at := w.now
	w.later(w.now+w.upTo(100*time.Microsecond), func() {
		w.spawnedAt = at
		call()
	})
}

// planRound plans the round at the next tick.
func (w *simWorld) planRound() {
	w.roundDue = (w.now/w.cfg.Tick + 1) * w.cfg.Tick
	at := w.roundDue
	if w.faulty && w.one(100) {
		at += w.lateness()
	}
	w.planRoundAt(at)
}

func (w *simWorld) planRoundAt(at time.Duration) {
	w.plannedN++
	n := w.plannedN
	w.later(at, func() {
		if n == w.plannedN && !w.inRound {
			w.round()
		}
	})
}

// lateness returns a random lateness of the judge.
func (w *simWorld) lateness() time.Duration {
	if w.one(4) {
		return w.upTo(w.longest)
	}
	return w.upTo(4 * w.cfg.Tick)
}

// round is one round of the goroutine that judges.
func (w *simWorld) round() {
	if w.now-w.roundDue > time.Millisecond {
		w.trace(nil, "the judge is late by", w.now-w.roundDue)
		w.away.add(w.roundDue, w.now)
		if w.now-w.roundDue >= w.least() { // by the Config of now
			w.certain.add(w.roundDue, w.now)
		}
	}
	w.inRound = true
	w.ln.driver.round()
	w.inRound = false
	w.watchHold()
	w.watchClosed()
	if w.ln.driver.leave() {
		w.judging = false
		return
	}
	w.planRound()
}

// pollWake takes the place of the wait for work before the next tick.
func (w *simWorld) pollWake() {
	if !w.judging || w.inRound || len(w.ln.wake) == 0 {
		return
	}
	<-w.ln.wake
	w.planRoundAt(max(w.now, min(w.roundDue, w.now+w.upTo(time.Millisecond))))
}

// watchHold records holds of verdicts, and checks that they are allowed.
func (w *simWorld) watchHold() {
	state := w.ln.watch.Outages()
	since := time.Duration(state.HeldSince())
	if since == 0 && state == w.outages {
		return
	}
	w.outages = state
	if since != 0 {
		w.addHold(simInterval{since, w.now})
	}
	for _, o := range state.Silent {
		w.addHold(simInterval{time.Duration(o.From), time.Duration(o.To)})
	}
}

func (w *simWorld) addHold(o simInterval) {
	if len(w.all) < 16 || w.grace() < 0 {
		w.violate(nil, "no hold with fewer than 16 connections or without a grace", "verdicts are held")
	}
	w.holds = append(w.holds, o)
	slices.SortFunc(w.holds, func(a, b simInterval) int { return int(a.from - b.from) })
	w.holds = w.holds.merged(0, 0)
}

// watchClosed checks which closed connections the Listener has forgotten.
func (w *simWorld) watchClosed() {
	for _, l := range w.all {
		l.check()
	}
	kept := w.closed[:0]
	for _, l := range w.closed {
		if !l.forgotten() {
			kept = append(kept, l)
		}
	}
	clear(w.closed[len(kept):])
	w.closed = kept
	w.checkCounts()
}

// mayBeOut returns the outages that may count.
func (w *simWorld) mayBeOut() simIntervals {
	all := append(append(simIntervals(nil), w.away...), w.holds...)
	if w.judging && !w.inRound && w.now > w.roundDue {
		all = append(all, simInterval{w.roundDue, w.now})
	}
	if w.slowSince != 0 {
		all = append(all, simInterval{w.slowSince, w.now})
	}
	slices.SortFunc(all, func(a, b simInterval) int { return int(a.from - b.from) })
	return all.merged(0, 0)
}

// wasOut returns the outages that certainly counted at a verdict.
func (w *simWorld) wasOut(judged time.Duration) (all simIntervals) {
	least := w.least()
	for _, o := range w.certain {
		if o.to <= judged && o.length() >= least {
			all = append(all, o)
		}
	}
	return all
}

// A simInterval is the time between two instants.
type simInterval struct{ from, to time.Duration }

func (i simInterval) length() time.Duration { return i.to - i.from }

// simIntervals are intervals in the order of their ends.
type simIntervals []simInterval

// add adds an interval that ends now. It swallows earlier intervals that it overlaps.
func (all *simIntervals) add(from, to time.Duration) {
	list := *all
	for len(list) > 0 && list[len(list)-1].to >= from {
		from = min(from, list[len(list)-1].from)
		to = max(to, list[len(list)-1].to)
		list = list[:len(list)-1]
	}
	*all = append(list, simInterval{from, to})
}

// since returns the time of the intervals after an instant.
func (all simIntervals) since(at time.Duration) (sum time.Duration) {
	for _, i := range all {
		sum += max(i.to-max(i.from, at), 0)
	}
	return sum
}

// merged joins intervals that are near each other, and drops short ones.
func (all simIntervals) merged(near, least time.Duration) (list simIntervals) {
	for _, i := range all {
		if n := len(list); n > 0 && i.from-list[n-1].to <= near {
			list[n-1].to = max(list[n-1].to, i.to)
			continue
		}
		list = append(list, i)
	}
	return slices.DeleteFunc(list, func(i simInterval) bool { return i.length() < least })
}
