package idle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/topn"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

// ErrOnLoop is returned by Inspect and Kick if they must wait for event loops and are called on the
// goroutine of one: it would wait for itself. Call them on another goroutine.
var ErrOnLoop = errors.New("idle: called on the goroutine of an event loop, which would wait for itself: call it on another goroutine")

// A Query says what [Reaper.Inspect] is to find out. The zero Query asks for nothing.
type Query struct {
	// Limit is how many connections are listed, the first ones in the order of By.
	Limit int
	// By is the order of the list: "idle" for the connections that were heard longest ago, "age"
	// for those that were opened longest ago, "output" for those with most output waiting. If
	// empty, it is "idle".
	By string
	// States makes Inspect count all connections by their states.
	States bool
	// Sectors is the greatest number of sectors of a [Ring]. If zero, there are no rings.
	Sectors int
	// Closed lists the connections that were reaped last, at most as many as Config.KeepClosed.
	Closed bool
}

// An Inspection is what [Reaper.Inspect] has found out.
type Inspection struct {
	Connections []ConnInfo     // of Query.Limit
	States      map[string]int // of Query.States: all states, zeros after an error
	// Overdue is how many connections should have been judged by now and were not yet. It is
	// counted with Query.States.
	Overdue int
	Rings   []Ring   // of Query.Sectors, one for each event loop that has had connections
	Closed  []Closed // of Query.Closed, the last one first
}

// The orders of a list of connections.
const (
	byIdle   = "idle"
	byAge    = "age"
	byOutput = "output"
)

// Inspect looks at the connections, and changes nothing. It goes through the event loops one after
// the other, in tasks of up to half a millisecond, a tenth of a second in all for a million
// connections. A connection that opens or closes meanwhile may be missing. A ring costs its loop 5
// ns per connection, or 20 ns if there are a million, in one task.
//
// The error is that of ctx if ctx ends first, [ErrOnLoop] on the goroutine of an event loop, or
// says what is wrong with the Query. Safe for concurrent use.
func (r *Reaper) Inspect(ctx context.Context, q Query) (Inspection, error) {
	q.By = cmp.Or(q.By, byIdle)
	if err := q.check(); err != nil {
		return Inspection{}, err
	}
	i := newInspector(q, r.clock.Elapsed())
	if q.Limit > 0 || q.States {
		if err := r.inspectConns(ctx, i); err != nil { // a part of the counts would be wrong
			return Inspection{States: newStates()}, err
		}
	}
	if q.Sectors > 0 {
		var err error
		if i.found.Rings, err = r.rings(ctx, q.Sectors); err != nil {
			return Inspection{}, err
		}
	}
	if q.Closed {
		i.found.Closed = r.closed()
	}
	i.found.Connections = i.first.Sorted()
	return i.found, nil
}

// check returns an error that joins all that is wrong with a Query.
func (q *Query) check() error {
	var errs []error
	if orders[q.By] == nil {
		errs = append(errs, fmt.Errorf("idle: Query.By is %q: set %s, %s or %s", q.By, byIdle, byAge, byOutput))
	}
	if q.Limit < 0 {
		errs = append(errs, fmt.Errorf("idle: Query.Limit is %d: set a positive number, or 0 for no list", q.Limit))
	}
	if q.Sectors < 0 {
		errs = append(errs, fmt.Errorf("idle: Query.Sectors is %d: set a positive number, or 0 for no rings", q.Sectors))
	}
	return errors.Join(errs...)
}

// An inspector collects what an Inspect finds.
type inspector struct {
	query Query
	now   mono.Time
	first *topn.List[ConnInfo]
	found Inspection
}

func newInspector(q Query, now mono.Time) *inspector {
	key := orders[q.By]
	i := &inspector{query: q, now: now}
	i.first = topn.New(q.Limit, func(a, b ConnInfo) int { return cmp.Compare(key(&b), key(&a)) })
	if q.States {
		i.found.States = newStates()
	}
	return i
}

// inspectStep is how many connections are inspected in one task: about half a millisecond.
const inspectStep = 1 << 10

// inspectConns shows all connections to an inspector, on their loops, in small tasks.
func (r *Reaper) inspectConns(ctx context.Context, i *inspector) error {
	for _, l := range r.registry.Load().loops {
		for from := uint32(0); ; from += inspectStep {
			more := false
			ran, err := r.runOn(ctx, l, func() { more = l.inspectFrom(from, i) })
			if err != nil {
				return err
			}
			if !ran || !more {
				break
			}
		}
	}
	return nil
}

// inspectFrom inspects the next connections. It reports whether there are more.
func (l *loop) inspectFrom(from uint32, i *inspector) (more bool) {
	end := min(from+inspectStep, l.states.Len())
	for id := from; id < end; id++ {
		if s := l.states.At(id); s.used() {
			l.inspect(i, id, s)
		}
	}
	return end < l.states.Len()
}

func (l *loop) inspect(i *inspector, id uint32, s *state) {
	record, _ := l.table.Find(key(s.conn))
	f := l.facts(record, id, s, l.clock.Elapsed())
	state := stateOf(s, &f, l.limitsOf(s))
	if i.query.States {
		i.found.States[state]++
		if due, ok := l.wheel.Deadline(s.timer); ok && mono.Time(due) <= l.clock.Read() {
			i.found.Overdue++
		}
	}
	if i.query.Limit > 0 {
		info := l.info(s, &f, i.now)
		info.State = state
		l.list(i, info, id, s)
	}
}

// ConnInfo is what a Reaper knows of a connection.
type ConnInfo struct {
	ID        ConnID
	Remote    net.Addr // the address of the socket, or of Conn.SetRemote
	Age       time.Duration
	ReadIdle  time.Duration // since the peer was heard, to within a tick
	WriteIdle time.Duration // since bytes were sent
	Received  uint64        // bytes that came in; Linux and TCP only
	Sent      uint64        // bytes that the peer has acknowledged; Linux and TCP only
	Output    int           // bytes that wait for the peer, in gnet and, if known, in the kernel
	// State is "exempt" after Conn.Exempt, "observed" if ObserveOnly has spared the connection,
	// "leaving" after MaxAge, "held" after Conn.Hold, "stalled" while output waits (with limits of
	// output only), "handshake" until Conn.Ready (with HandshakeTimeout only), and "open"
	// otherwise. If several apply, it is the first of them.
	State  string
	Due    time.Duration // until the next judgement
	Missed int           // pings without an answer
}

// The states of a connection, in their order: if several apply, it is the first.
const (
	stateExempt    = "exempt"
	stateObserved  = "observed"
	stateLeaving   = "leaving"
	stateHeld      = "held"
	stateStalled   = "stalled"
	stateHandshake = "handshake"
	stateOpen      = "open"
)

// newStates returns the number 0 for each state.
func newStates() map[string]int {
	return map[string]int{
		stateExempt: 0, stateObserved: 0, stateLeaving: 0, stateHeld: 0, stateStalled: 0, stateHandshake: 0, stateOpen: 0,
	}
}

func stateOf(s *state, f *verdict.Facts, lim *limits) string {
	switch {
	case s.Exempt():
		return stateExempt
	case s.Observed():
		return stateObserved
	case f.Leaving:
		return stateLeaving
	case f.Held:
		return stateHeld
	case f.StalledSince != 0 && lim.PollOutput() > 0:
		return stateStalled
	case !f.Ready && lim.Handshake > 0:
		return stateHandshake
	}
	return stateOpen
}

// list adds a connection to the list if it is one of the first.
func (l *loop) list(i *inspector, info ConnInfo, id uint32, s *state) {
	var ev verdict.Evidence // not the loop's own: a judgement may be using that
	if i.query.By == byOutput {
		l.reaper.kernel.ask(s.conn.Fd(), &ev)
		info.Output = s.conn.OutboundBuffered() + max(ev.Queued, 0)
	}
	if !i.first.Admits(info) {
		return
	}
	if i.query.By != byOutput {
		l.reaper.kernel.ask(s.conn.Fd(), &ev)
	}
	i.first.Add(l.complete(info, id, s, &ev))
}

// info returns what is known of a connection at an instant, without a question to the kernel.
func (l *loop) info(s *state, f *verdict.Facts, now mono.Time) ConnInfo {
	i := ConnInfo{
		Age: max(now.Sub(f.Opened.To), 0), ReadIdle: max(now.Sub(f.Heard.To), 0),
		WriteIdle: max(now.Sub(f.Wrote.To), 0), Missed: f.Missed,
	}
	if due, ok := l.wheel.Deadline(s.timer); ok {
		i.Due = max(mono.Time(due).Sub(now), 0)
	}
	return i
}

// complete adds what only listed connections need.
func (l *loop) complete(i ConnInfo, id uint32, s *state, ev *verdict.Evidence) ConnInfo {
	i.ID, i.Remote = l.connID(id, s), l.remote(s)
	i.Output = s.conn.OutboundBuffered() + max(ev.Queued, 0)
	i.Received, i.Sent = ev.Received, ev.Acked
	if ev.Dated {
		i.ReadIdle = min(i.ReadIdle, ev.Silent)
		i.Age = max(i.Age, i.ReadIdle) // it is kept in whole ticks
		i.WriteIdle = ev.Quiet
	}
	return i
}

// remote returns the address that reports show for a connection.
func (l *loop) remote(s *state) net.Addr {
	if addr, ok := l.remotes[s]; ok {
		return addr
	}
	return s.conn.RemoteAddr()
}

// orders are the values of Query.By, and what each compares: the larger, the sooner it is listed.
var orders = map[string]func(i *ConnInfo) int64{
	byIdle:   func(i *ConnInfo) int64 { return int64(i.ReadIdle) },
	byAge:    func(i *ConnInfo) int64 { return int64(i.Age) },
	byOutput: func(i *ConnInfo) int64 { return int64(i.Output) },
}

// ErrBadConnID is returned by Kick for a text that is not a ConnID.
var ErrBadConnID = errors.New("idle: not the ID of a connection, such as 1-23-456")

// ConnID names a connection of a Reaper, for [Reaper.Kick]. No two connections have the same
// ConnID. It is a text such as 1-23-456, and changes when the connection gets older than 2^30
// ticks, which are 3.4 years of 100 ms.
type ConnID string

// connID returns the number of the loop, that of the state, and the instant at which the connection
// was opened: two connections that were opened in the same tick have different states.
func (l *loop) connID(id uint32, s *state) ConnID {
	return ConnID(fmt.Sprintf("%d-%d-%d", l.number, id, s.Opened()))
}

// parse returns the numbers in a ConnID.
func (id ConnID) parse() (loop, state, opened uint32, err error) {
	var n [3]uint32
	parts := strings.Split(string(id), "-")
	for i, part := range parts {
		number, err := strconv.ParseUint(part, 10, 32)
		if err != nil || len(parts) != len(n) {
			return 0, 0, 0, fmt.Errorf("%w: %.60q", ErrBadConnID, string(id))
		}
		n[i] = uint32(number)
	}
	return n[0], n[1], n[2], nil
}

// Kick closes a connection, held and exempt ones too, and returns when OnClose has returned.
// OnClose gets a [ReapError] with the reason [Kicked]. The error is [ErrNotWatched] if there is no
// such connection any more, [ErrOnLoop] on the goroutine of an event loop, [ErrBadConnID] if id is
// not written like one, or that of ctx if ctx ends first. Safe for concurrent use.
func (r *Reaper) Kick(ctx context.Context, id ConnID) error {
	number, state, opened, err := id.parse()
	if err != nil {
		return err
	}
	loops := r.registry.Load().loops
	n := slices.IndexFunc(loops, func(l *loop) bool { return l.number == number })
	if n < 0 {
		return ErrNotWatched
	}
	l, found := loops[n], false
	_, err = r.runOn(ctx, l, func() {
		if state >= l.states.Len() {
			return
		}
		if s := l.states.At(state); s.used() && uint32(s.Opened()) == opened {
			found = true
			l.reap(s, &ReapError{Reason: Kicked})
		}
	})
	if err == nil && !found {
		return ErrNotWatched
	}
	return err
}

// alivePoll is the interval at which runOn checks that a loop that does not answer still exists.
const alivePoll = 100 * time.Millisecond

// runOn runs a function on a loop and waits for it. It reports false if the loop has no
// connections, or loses them all before: gnet may have dropped the task then.
func (r *Reaper) runOn(ctx context.Context, l *loop, do func()) (ran bool, err error) {
	switch {
	case !r.isLive(l):
		return false, nil
	case r.onLoop():
		return false, ErrOnLoop
	}
	done := make(chan struct{})
	var taken atomic.Bool // by the task, or by this call, which does not want it any more
	task := func(context.Context) error {
		if taken.Swap(true) {
			return nil
		}
		defer close(done)
		l.stop = nil
		do()
		l.publish(l.clock.Stamp()) // callers read the counters as well
		return l.stop
	}
	live, err := r.execute(ctx, l, task)
	if !live || err != nil {
		return false, err
	}
	poll := time.NewTicker(alivePoll)
	defer poll.Stop()
	for {
		select {
		case <-done:
			return true, nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-poll.C:
			live = r.isLive(l)
		}
		if (err != nil || !live) && !taken.Swap(true) { // otherwise it runs now
			return false, err
		}
	}
}

// isLive reports whether a loop has connections, so that gnet runs its tasks.
func (r *Reaper) isLive(l *loop) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return l.live
}

// execute posts a task to a loop that has connections.
func (r *Reaper) execute(ctx context.Context, l *loop, task func(context.Context) error) (live bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !l.live {
		return false, nil
	}
	return true, l.el.Execute(ctx, gnet.RunnableFunc(task))
}

// onLoop reports whether the caller runs on the goroutine of an event loop.
func (r *Reaper) onLoop() bool {
	id := goroutineID()
	return slices.ContainsFunc(r.registry.Load().loops, func(l *loop) bool { return l.goroutine == id })
}

// goroutineID returns the number of this goroutine, which no other goroutine of the process gets.
// Go tells it in a stack trace only: "goroutine 18 [running]: ...".
func goroutineID() string {
	var b [32]byte
	fields := strings.Fields(string(b[:runtime.Stack(b[:], false)]))
	return fields[1]
}
