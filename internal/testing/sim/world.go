// Package sim simulates servers with their kernel, their network and their peers in virtual time,
// for tests of packages idle and idlenet. A [World] owns all that does not depend on the front end:
// events, random choices, peers, sockets, faults, and an oracle. The oracle knows the physical
// events, and checks each verdict by the contract in docs/verdict.md. It does not know how a front
// end judges. A [Front] makes the server of a world, and drives it.
package sim

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// A Kind selects the faults of a world.
type Kind uint8

const (
	Anything   Kind = iota
	NetworkOut      // the server's own network is down for less than one timeout
	pause           // the machine is paused, once
	Calm            // no faults
)

// Addrs are the addresses of the server in the two networks.
var Addrs = [2]net.Addr{
	&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7}, &net.TCPAddr{IP: net.IPv4(127, 1, 0, 1), Port: 7},
}

// A Front is the front end of a world: the server, and the code that drives it.
type Front interface {
	Choose()                  // chooses the behaviour of the code of the server, before Start
	Start()                   // makes the server by the settings, and completes these
	Attach(l *Life)           // sets the Conn of a new connection, and its Loop
	Connect(l *Life)          // the kernel has accepted a connection
	Drives() bool             // there is a driver
	Round()                   // is one round of the driver
	Poll()                    // is called after each event, and plans rounds before the next tick
	Stopped()                 // is called after a stop of the process
	Disturb(at time.Duration) // plans a disturbance of its own
	Update(s Settings) error  // calls Update
	Kick(l *Life)             // calls Kick
	Finish()                  // closes all connections, and checks that nothing is left
}

// Traits are properties of a front end.
type Traits struct {
	Package string
	Seeds   []uint64 // of worlds in which a promise was once broken
	// A verdict may be later than two ticks by Late and by LatePer for each connection.
	Late, LatePer time.Duration
	// SlowGroups is the least idle timeout for which an outage of one network of two is noticed.
	SlowGroups time.Duration
	// Loops says that event loops judge connections, and leave those that their peers have ended. A
	// front end without loops judges in its rounds.
	Loops bool
	// Counts occur in a long run, besides those of all front ends; Never are reasons that do not.
	Counts, Never []string
}

// A World is a server, its kernel, its network and its peers. Its seed determines all of it.
type World struct {
	front  Front
	Traits Traits
	Server interface { // set by Start
		reap.Reaper
		Drain(spread, deadline time.Duration) error
	}
	Monitor  *outage.Monitor        // of the server
	Silences func() []*outage.State // of groups, while they have an effect
	Seed     uint64
	Rand     *rand.Rand
	extra    *rand.Rand // for what the worlds of older seeds do not have
	Kind     Kind
	Family   Family
	Jiffy    time.Duration
	Set      *Settings     // in force; replaced by an Update
	Longest  time.Duration // longest limit
	limited  []reap.Reason // the limits that may apply
	Decides  bool          // there is an OnIdle
	Changes  bool          // there are things that the worlds of older seeds do not have
	Reply    int           // bytes, at most

	Now     time.Duration
	Horizon time.Duration
	physics queue // of the kernel, the network and the peers
	process queue // of the server; waits while the process is stopped

	All      []*Life
	Loops    []*Loop
	Open     int // connections
	asked    *Life
	readAt   time.Duration // the last reading of the clock
	RoundDue time.Duration // the next multiple of the tick, at which the driver should run
	plannedN uint64        // number of the planned round; earlier ones are void
	rounds   int
	InRound  bool
	Admits   bool // a connection is accepted; the verdict of a look may wait for its call meanwhile
	frozen   bool // reading the clock takes no time

	Faulty    bool
	two       bool // there is a second network
	multipath bool // of TCP: each peer has a second path
	loss      float64
	netDown   Interval
	acksDown  Interval
	Away      Intervals     // the driver did not run
	certain   Intervals     // the same, if they must be recognised
	netAway   Intervals     // outages of the server's network that must be recognised
	slow      time.Duration // a call by the driver takes long since then, 0 if none does

	inStop      bool
	readsToStop int

	holds   Intervals       // verdicts were held
	heard   []time.Duration // when a byte of any peer came, was read or found, the last ones
	outages uint64          // of the Monitor, so far

	changedAt  time.Duration // the settings were changed then
	observedTo time.Duration // ObserveOnly was on until then
	observes   bool          // ObserveOnly was on at some time
	drain      struct{ at, done, deadline time.Duration }
	shedsMore  bool          // one call has not closed enough connections for the total of output
	overSince  time.Duration // all connections have more output than the total since then, or 0

	failure            *Life // of the broken promise, perhaps nil
	promised, happened string
	traced             *int // the connection to trace
	lines              []string
	N                  map[string]int // counts for the report
}

// Violate records that a promise was broken, and what happened instead. Only the first one counts.
func (w *World) Violate(l *Life, promised, format string, args ...any) {
	if !w.Failed() {
		w.failure, w.promised, w.happened = l, promised, fmt.Sprintf(format, args...)
		w.Trace(l, "VIOLATION: promised: "+promised+"; "+w.happened)
	}
}

// Failed reports whether a promise was broken, and Failure describes it.

func (w *World) Failed() bool    { return w.promised != "" }
func (w *World) Failure() string { return w.promised + "\nbut: " + w.happened }

// Trace records an event of the traced connection or of the server.
func (w *World) Trace(l *Life, what ...any) {
	if w.traced == nil || l != nil && l.ID != *w.traced {
		return
	}
	subject := "server"
	if l != nil {
		subject = fmt.Sprintf("conn %d", l.ID)
	}
	w.lines = append(w.lines, fmt.Sprintf("%14v %-8s ", w.Now, subject)+strings.TrimSpace(fmt.Sprintln(what...)))
}

// One reports true once in n calls on average.
func (w *World) One(n int) bool { return w.Rand.IntN(n) == 0 }

// UpTo returns a duration between 1 ns and another.
func (w *World) UpTo(d time.Duration) time.Duration {
	return time.Duration(w.Rand.Int64N(int64(max(d, 1)))) + 1
}

// Skewed returns a duration between two others. Each order of magnitude is equally likely.
func (w *World) Skewed(from, to time.Duration) time.Duration {
	return time.Duration(float64(from) * math.Pow(float64(to)/float64(from), w.Rand.Float64()))
}

// Limit returns a timeout.
func (w *World) Limit() time.Duration {
	return w.Skewed(200*time.Millisecond, 5*time.Second).Round(time.Millisecond)
}

// After plans an event of the kernel, the network or a peer, and Later one of the server's process.

func (w *World) After(d time.Duration, do func())  { w.physics.push(w.Now+d, do) }
func (w *World) Later(at time.Duration, do func()) { w.process.push(at, do) }

// Pass passes time in which the server's process does nothing else.
func (w *World) Pass(d time.Duration) {
	until := w.Now + d
	for at := w.physics.next(); at <= until; at = w.physics.next() {
		w.Now = max(w.Now, at)
		w.physics.run()
	}
	w.Now = until
}

// Sleep passes time in which the other threads of the process run.
func (w *World) Sleep(d time.Duration) {
	until := w.Now + d
	for !w.Failed() {
		queue := &w.physics
		if w.process.next() < queue.next() {
			queue = &w.process
		}
		if queue.next() > until {
			break
		}
		w.Now = max(w.Now, queue.next())
		queue.run()
		w.watchHold()
		w.front.Poll()
	}
	w.Now = max(w.Now, until)
}

// Elapsed is the clock of the server.
func (w *World) Elapsed() mono.Time {
	if w.frozen {
		return mono.Time(w.Now)
	}
	w.Pass(50 * time.Nanosecond)
	at := w.Now
	if w.readsToStop--; w.readsToStop == 0 && w.Faulty && w.Now < w.Horizon {
		w.readsToStop = 1 + w.Rand.IntN(20000)
		w.Stop(w.stopLength(), w.One(4))
		if w.One(2) {
			at = w.Now // half of the stops come before the reading, half after it
		}
	}
	if l := w.asked; l != nil {
		if l.answeredAt = w.Now; w.Now-l.Judged > time.Millisecond {
			l.now.anySent = w.Now // the server cannot know how old the answer is
		}
	}
	w.asked, w.readAt = nil, at
	return mono.Time(at)
}

// AboutToAsk is called before a question to the kernel. The process may be stopped before it.
func (w *World) AboutToAsk(l *Life) {
	if !w.Admits {
		l.askedFrom = w.readAt
	}
	w.Pass(time.Microsecond)
	if w.Faulty && w.One(300) && w.Now < w.Horizon {
		w.Stop(w.stopLength(), w.One(4))
	}
}

// Answer answers a question about an open connection. A verdict may follow.
func (w *World) Answer(l *Life, ev *verdict.Evidence, mayJudge bool) {
	l.Sock.answer(ev)
	w.watchHold()
	if mayJudge {
		l.question()
	}
	w.asked = l
	w.Trace(l, "asked:", ev.Found, ev.Silent, ev.Quiet, ev.Queued)
	if w.Faulty && w.One(200) {
		w.readsToStop = 1 + w.Rand.IntN(3)
	}
}

// PlanRounds begins the rounds of a driver.
func (w *World) PlanRounds() {
	w.RoundDue = (w.Now/w.Set.Tick + 1) * w.Set.Tick
	w.PlanRound(w.RoundDue)
}

// PlanRound plans the next round of the driver, which may be late. Those planned before are void.
func (w *World) PlanRound(at time.Duration) {
	w.plannedN++
	n := w.plannedN
	if w.Faulty && w.One(100) {
		tick := 4 * w.Set.Tick
		at += w.UpTo([]time.Duration{w.Longest, tick, tick, tick}[w.Rand.IntN(4)])
	}
	w.Later(at, func() {
		if n == w.plannedN && w.front.Drives() && !w.InRound {
			w.round()
		}
	})
}

func (w *World) round() {
	if w.Now-w.RoundDue > time.Millisecond {
		w.Trace(nil, "the driver is late by", w.Now-w.RoundDue)
		w.Away.Add(w.RoundDue, w.Now)
		w.addCertain(w.RoundDue, w.Now)
	}
	w.InRound = true
	w.front.Round()
	w.InRound = false
	w.watchOutput()
	w.watchHold()
	if w.rounds++; w.rounds%16 == 0 && !slices.ContainsFunc(w.Loops, func(l *Loop) bool { return l.Running }) {
		w.CheckCounts(false)
	}
	if w.front.Drives() {
		w.PlanRounds()
	}
}

// Refused is called when a new connection was refused. It says whether the server may be full.
func (w *World) Refused(l *Life, isFull bool) {
	w.N["refused"]++
	w.Trace(l, "refused")
	if !isFull && w.drain.at == 0 {
		w.Violate(l, "a connection is refused only for lack of room, or in a drain", "it is refused")
	}
}

// CheckCounts checks that the counters add up. Before the end, callbacks may be under way.
func (w *World) CheckCounts(isEnd bool) reap.Stats {
	w.frozen = true
	s := w.Server.Stats()
	w.frozen = false
	w.Want("Opened", s.Opened, w.N["lives"])
	w.Want("Opened - Closed", s.Opened-s.Closed, s.Connections)
	w.Want("Refused", s.Refused, w.N["refused"])
	for k := verdict.First; k <= verdict.Last; k++ {
		if n := w.N[k.Error()]; isEnd || s.Reaped[k] < uint64(n) {
			w.Want("Reaped "+k.Error(), s.Reaped[k], n)
		}
	}
	if s.ClosedByHandler > s.Closed || s.Connections < w.Open || isEnd && s.Connections+w.Server.Connections() > 0 {
		w.Violate(nil, "ClosedByHandler is a part of Closed, and open connections are one of Connections",
			"%d of %d, %d of %d", s.ClosedByHandler, s.Closed, w.Open, s.Connections)
	}
	return s
}

func (w *World) Want(what string, got uint64, want int) {
	if got != uint64(want) {
		w.Violate(nil, what+" is exact", "%s is %d, want %d", what, got, want)
	}
}

// never is an instant that is never in the time of the simulation.
const never = time.Duration(1<<63 - 1)

// An event is a function that runs at an instant of virtual time.
type event struct {
	at time.Duration
	do func()
}

// A queue has the events in the reverse order. Most new events are soon, and move few others. That
// is twice as fast as container/heap.
type queue []event

// push adds an event, which runs after the events of the same instant.
func (q *queue) push(at time.Duration, do func()) {
	i, _ := slices.BinarySearchFunc(*q, at, func(e event, at time.Duration) int { return cmp.Compare(at, e.at) })
	*q = slices.Insert(*q, i, event{at, do})
}

// next returns the instant of the first event, or never.
func (q queue) next() time.Duration {
	if len(q) == 0 {
		return never
	}
	return q[len(q)-1].at
}

// run takes the first event, and runs it.
func (q *queue) run() {
	first := (*q)[len(*q)-1]
	*q = slices.Delete(*q, len(*q)-1, len(*q))
	first.do()
}
