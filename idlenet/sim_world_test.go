package idlenet

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/testing/sim"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// simTraits are those of a Listener.
var simTraits = sim.Traits{
	Package: "idlenet", Late: 2 * time.Millisecond, LatePer: 10 * time.Microsecond, SlowGroups: 3200 * time.Millisecond,
	Seeds: []uint64{
		41,     // a handshake ended while bytes of the peer waited unread
		630,    // a limit that passed with the maximum age was noticed two ticks after the goodbye
		1201,   // shed a step of the kernel's clock early
		7655,   // the process was stopped between a question and the choice of a connection to shed
		14008,  // a ping waited for the retry of an earlier one, which was answered
		100510, // a reset discarded bytes after which pings are counted
		312157, // an outage ended just before an Update, and was too short afterwards
		909196, // an address was used again while a ping for it waited

		1795858591475672907, // two stops in a row delayed a ping until two others were due
	},
	Counts: []string{"told to close", "requests after the end", "closed by the Listener", "closed at a question", "addresses used again", "hand-overs"},
	Never:  []string{reap.OverLimit.Error()},
}

// TestSimulation runs the code of this package in simulated worlds, see [sim.Run].
func TestSimulation(t *testing.T) { sim.Run(t, simTraits, newSimWorld) }

// A simWorld is a world with a Listener and simulated sockets of package net.
type simWorld struct {
	sim.World
	cfg  Config
	addr net.Addr
	ln   *Listener
	http http.Server // of AttachHTTP

	next       net.Conn                // the connection that Accept of the inner listener returns
	wrap       func(net.Conn) net.Conn // a layer around it, if not nil
	closed     []*simLife              // closed connections that are still watched
	dropped    []*simLife              // their addresses may be used again
	judging    bool
	ends       bool          // no connection is accepted any more
	inspecting bool          // no verdict follows a question to the kernel
	spawned    int           // calls that wait; an address is not used again meanwhile
	calledAt   time.Duration // the running call began then

	quiet      bool // no server closes by chance
	slowCalls  bool
	late, work time.Duration // see simManners
	buffer     [1 << 12]byte // for reads
}

// The world is a net.Listener with at most one connection.

func (w *simWorld) Accept() (c net.Conn, err error) {
	if c, w.next = w.next, nil; c == nil {
		err = io.EOF
	}
	return c, err
}

func (w *simWorld) Close() error   { return nil }
func (w *simWorld) Addr() net.Addr { return w.addr }

func newSimWorld(seed uint64) *sim.World {
	w := &simWorld{late: 100 * time.Microsecond, work: time.Millisecond}
	return w.Build(seed, w, simTraits)
}

func (w *simWorld) Choose() {
	w.slowCalls = w.One(4)
	if w.One(3) {
		w.late = w.Skewed(time.Millisecond, w.Longest)
	}
	if w.One(3) {
		w.work = w.Skewed(time.Millisecond, 2*w.Longest)
	}
	w.ChooseReply()
}

// Start makes the Listener. Without dates of the kernel some limits need a stamp, and others cannot
// be set.
func (w *simWorld) Start() {
	if w.quiet = w.Kind == sim.NetworkOut; w.quiet {
		w.Family = sim.TCP
	}
	s, dated := w.Set, w.Family == sim.TCP
	if s.OutputLimit = (verdict.Output{}); !dated {
		s.WriteTimeout, s.AllTimeout, s.MinRate = 0, 0, verdict.Rate{}
	}
	if own := w.Stream(0x4a1f); dated && own.IntN(2) == 0 {
		s.HalfClosedTimeout = 200*time.Millisecond + time.Duration(own.Int64N(int64(5*time.Second)))
	}
	w.cfg = Config{
		Stamp: !dated || w.One(4), OnReap: w.onReap, CloseGrace: time.Duration(w.Rand.IntN(2)) * w.Limit(),
		KeepClosed: w.Rand.IntN(3), Reset: [][]Reason{nil, {}, {reap.ReadIdle, reap.WriteStall, reap.Kicked}}[w.Rand.IntN(3)],
	}
	if s.CopyTo(&w.cfg); !configtable.Net.Watches(&w.cfg) {
		w.cfg.ReadTimeout = w.Limit()
	}
	w.cfg.OnIdle = sim.When(w.Decides, w.onIdle)
	w.cfg.Heartbeat.Ping = sim.When(s.Heartbeat.Interval > 0, w.ping)
	w.cfg.Goodbye = sim.When(s.MaxAgeGrace > 0, w.goodbye)
	if w.addr = sim.Addrs[0]; w.Family == sim.Unix {
		w.addr = &net.UnixAddr{Net: "unix", Name: "simulated"}
	}
	w.listen(1 + w.Rand.IntN(3))
}

// listen makes the Listener, with the clock, the kernel and the driver of the world, and with a
// number of shards that does not depend on the machine.
func (w *simWorld) listen(shards int) {
	checked, err := w.cfg.check(w.addr, 0, nil)
	if err != nil {
		panic("BUG: simulated Config: " + err.Error())
	}
	w.Adopt(&w.cfg)
	w.ln, _ = newReaper(checked, w.Elapsed, w.ask).Listen(w)
	w.ln.AttachHTTP(&w.http)
	w.NewLoop()
	w.Server, w.Monitor, w.Silences = w.ln, &w.ln.watch.Monitor, w.ln.watch.Silences
	w.ln.run, w.ln.spawn, w.ln.shards = w.startJudge, w.spawn, nil
	for n := range shards {
		w.ln.shards = append(w.ln.shards, newShard(w.ln.Reaper, uint32(n+1), shards))
	}
}

func (w *simWorld) Attach(l *sim.Life) {
	s := &simLife{Life: l, w: w, conn: w.newConn(), simManners: w.newManners()}
	l.Loop, l.Conn, s.conn.simLife = w.Loops[0], s, s
}

// newConn returns a connection at the address of one that was forgotten, or else at a new one in a
// shard that is chosen by chance.
func (w *simWorld) newConn() *simConn {
	for i, l := range w.dropped {
		if w.Now > l.goneAt+w.cfg.Tick && l.finished && w.spawned == 0 {
			w.dropped = slices.Delete(w.dropped, i, i+1)
			w.N["addresses used again"]++
			return l.conn
		}
	}
	for number := w.Rand.IntN(len(w.ln.shards)); ; {
		if c := new(simConn); w.ln.shard(c).Number == uint32(number+1) {
			return c
		}
	}
}

// Connect lets the server accept a connection, soon.
func (w *simWorld) Connect(l *sim.Life) { w.Later(w.Now+w.UpTo(w.late), l.Conn.(*simLife).accept) }

// lifeOf returns the connection that the Listener means.
func (w *simWorld) lifeOf(c net.Conn) *simLife {
	own, _ := w.ln.root(c)
	return own.(*simConn).simLife
}

// ask answers a question of the Listener about a connection.
func (w *simWorld) ask(c socket, fresh time.Duration, ev *verdict.Evidence) (open bool) {
	l := w.lifeOf(c)
	l.calledFor("the kernel is asked")
	w.AboutToAsk(l.Life)
	l.askedAt = w.Now
	if l.Sock.Closed {
		return false
	}
	w.Answer(l.Life, ev, !w.inspecting && fresh < configtable.TenYears) // no verdict follows a probe
	if ev.Dated && ev.Received > 0 && ev.Silent < fresh {
		ev.Found = verdict.Nothing // not asked for
	}
	if !w.quiet && w.One(500) {
		w.N["closed at a question"]++
		l.serverCloses()
	}
	return true
}

func (w *simWorld) Round() {
	w.ln.driver.round()
	w.closed = slices.DeleteFunc(w.closed, (*simLife).forgotten)
	if n := w.ln.Connections(); n < w.Open || n > w.Open+len(w.closed) {
		w.Violate(nil, "Connections counts the open ones, and closed ones that were not found",
			"%d of %d and %d", n, w.Open, len(w.closed))
	}
	w.judging = !w.ln.driver.leave()
}

// Poll takes the place of the driver's wait for work before the next tick.
func (w *simWorld) Poll() {
	if w.judging && !w.InRound && len(w.ln.watch.Wakes) > 0 {
		<-w.ln.watch.Wakes
		w.PlanRound(max(w.Now, min(w.RoundDue, w.Now+w.UpTo(time.Millisecond))))
	}
}

// startJudge takes the place of the goroutine that judges.
func (w *simWorld) startJudge() {
	if w.judging {
		w.Violate(nil, "there is one goroutine that judges", "there are two")
	}
	w.judging = true
	w.PlanRounds()
}

// spawn takes the place of the go statement.
func (w *simWorld) spawn(call func()) {
	w.spawned++
	w.Later(w.Now+w.UpTo(100*time.Microsecond), func() {
		w.spawned--
		w.calledAt = w.Now
		call()
	})
}

// Stopped does nothing: a Listener may hold a mutex whenever the process stops.

func (w *simWorld) Drives() bool { return w.judging }
func (w *simWorld) Stopped()     {}

func (w *simWorld) Disturb(at time.Duration) {
	w.Later(at, func() {
		w.inspecting = true
		_, _ = w.ln.Inspect(context.Background(), reap.Query{Limit: 5, States: true, Closed: true})
		w.inspecting = false
	})
}

func (w *simWorld) Update(s sim.Settings) error {
	s.CopyTo(&w.cfg)
	return w.ln.Update(func(c *Config) { *c = w.cfg })
}

// Kick calls Kick some time later, when the connection may be closed.
func (w *simWorld) Kick(sl *sim.Life) {
	l := sl.Conn.(*simLife)
	id := w.ln.conn(l.c).ID()
	w.Later(w.Now+w.UpTo(w.Longest), func() {
		if l.goneAt != 0 {
			return
		}
		ended, open := w.ln.Reason(l.c) != nil, l.IsOpen
		l.KickedAt = cmp.Or(l.KickedAt, w.Now)
		err := w.ln.Kick(context.Background(), id)
		switch {
		case ended && err == nil:
			w.Violate(l.Life, "an ended connection is not kicked", "Kick returns no error")
		case open && !ended && (err != nil || w.ln.Reason(l.c) == nil):
			w.Violate(l.Life, "Kick ends an open connection", "it does not")
		}
	})
}

// outagesSince bounds the time by which outages put off what follows an instant.
func (w *simWorld) outagesSince(since time.Duration) (sum time.Duration) {
	for _, o := range w.MayBeOut() {
		if length := o.To - o.From; o.To+3*length >= since-w.Slack() { // its grace may last longer
			sum += 3*length + 4*w.Set.Tick
		}
	}
	return sum
}

// foundBy bounds the time at which a connection is found closed.
func (w *simWorld) foundBy(closed time.Duration) time.Duration {
	return closed + max(1<<11*w.Set.Tick, 2*w.Longest) + w.Slack() + w.outagesSince(closed)
}

// Finish closes all connections, and checks that nothing is left.
func (w *simWorld) Finish() {
	w.ends = true
	for _, l := range w.All {
		if s := l.Conn.(*simLife); s.c != nil {
			s.serverCloses()
		}
	}
	closed, patient := w.One(2), w.Seed%8 == 0
	found := w.foundBy(w.Now)
	if closed {
		_ = w.ln.Close() // the goroutine searches for closed connections
		w.Poll()
	} else if patient {
		found += time.Minute
	}
	for !w.Failed() && w.judging && w.Now <= found && (closed || patient || w.ln.Connections() > 0) {
		w.Sleep(w.cfg.Tick)
	}
	w.Sleep(2 * w.late)
	if w.judging && (closed || patient) {
		w.Violate(nil, fmt.Sprintf("the goroutine ends by %v, when all connections are closed", found), "it runs")
	}
	w.CheckCounts(true)
	switch {
	case w.Failed():
	case closed:
		w.checkReasonsGo()
	case patient:
		w.checkEmpty()
	}
}

// checkReasonsGo checks that a closed Listener has forgotten everything a minute later, as soon as
// it has a connection again.
func (w *simWorld) checkReasonsGo() {
	w.Sleep(time.Minute + 2*w.cfg.Tick)
	l := w.NewLife().Conn.(*simLife)
	l.use, l.timeout = simUseConnState, 0
	l.Opening()
	var err error
	if l.c, err = w.ln.Watch(l.conn); err != nil {
		w.Violate(l.Life, "Watch takes a connection", "%v", err)
		return
	}
	l.Open()
	l.Opened()
	w.Sleep(4 * w.cfg.Tick)
	l.serverCloses()
	w.Sleep(3*w.cfg.Tick + 2*w.late)
	if l.Ended == nil && !w.Failed() { // in a drain its reason is kept
		w.checkEmpty()
	}
}

// checkEmpty checks that the Listener has forgotten everything.
func (w *simWorld) checkEmpty() {
	for _, s := range w.ln.shards {
		if s.Open+s.ids.Len()+s.Ends.Len()+s.Schedule.Len()+len(s.calls)+len(s.reasons.all) > 0 {
			w.Violate(nil, "the Listener is empty in the end", "%d connections, %d addresses, %d ends, %d entries, %d calls, %d reasons",
				s.Open, s.ids.Len(), s.Ends.Len(), s.Schedule.Len(), len(s.calls), len(s.reasons.all))
		}
	}
}
