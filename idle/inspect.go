package idle

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/inspection"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// ErrOnLoop is returned by Inspect and Kick if they must wait for event loops and are called on the
// goroutine of one: it would wait for itself. Call them on another goroutine.
var ErrOnLoop = errors.New("idle: called on the goroutine of an event loop, which would wait for itself: call it on another goroutine")

// A Query says what [Reaper.Inspect] is to find out. See [reap.Query].
type Query = reap.Query

// An Inspection is what [Reaper.Inspect] has found out. See [reap.Inspection].
type Inspection = reap.Inspection

// Inspect looks at the connections, and changes nothing. It goes through the event loops one after
// the other, in tasks of up to half a millisecond, a tenth of a second in all for a million
// connections. A connection that opens or closes meanwhile may be missing. A ring costs its loop 5
// ns per connection, or 20 ns if there are a million, in one task.
//
// The error is that of ctx if ctx ends first, [ErrOnLoop] on the goroutine of an event loop, or
// says what is wrong with the Query. Safe for concurrent use.
func (r *Reaper) Inspect(ctx context.Context, q Query) (Inspection, error) {
	i, err := inspection.New(q, r.clock.Elapsed())
	if err != nil {
		return Inspection{}, err
	}
	if q.Limit > 0 || q.States {
		if err := r.inspectConns(ctx, i); err != nil { // a part of the counts would be wrong
			return Inspection{States: inspection.NewStates()}, err
		}
	}
	if q.Sectors > 0 {
		if i.Found.Rings, err = r.rings(ctx, q.Sectors); err != nil {
			return Inspection{}, err
		}
	}
	if q.Closed {
		i.Found.Closed = r.closed()
	}
	i.Found.Connections = i.First.Sorted()
	return i.Found, nil
}

// inspectStep is how many connections are inspected in one task: about half a millisecond.
const inspectStep = 1 << 10

// inspectConns shows all connections to an inspector, on their loops, in small tasks.
func (r *Reaper) inspectConns(ctx context.Context, i *inspection.Inspector) error {
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
func (l *loop) inspectFrom(from uint32, i *inspection.Inspector) (more bool) {
	end := min(from+inspectStep, l.states.Len())
	for id := from; id < end; id++ {
		if s := l.states.At(id); s.used() {
			l.inspect(i, id, s)
		}
	}
	return end < l.states.Len()
}

func (l *loop) inspect(i *inspection.Inspector, id uint32, s *state) {
	record, _ := l.table.Find(key(s.conn))
	f := l.facts(record, id, s, l.clock.Elapsed())
	state := inspection.StateOf(&s.State, &f, &l.limitsOf(s).Limits)
	if i.Query.States {
		i.Found.States[state]++
		if due, ok := l.wheel.Deadline(s.timer); ok && mono.Time(due) <= l.clock.Read() {
			i.Found.Overdue++
		}
	}
	if i.Query.Limit > 0 {
		info := l.info(s, &f, i.Now)
		info.State = state
		l.list(i, info, id, s)
	}
}

// ConnInfo is what a Reaper knows of a connection. See [reap.ConnInfo].
type ConnInfo = reap.ConnInfo

// list adds a connection to the list if it is one of the first.
func (l *loop) list(i *inspection.Inspector, info ConnInfo, id uint32, s *state) {
	var ev verdict.Evidence // not the loop's own: a judgement may be using that
	if i.Query.By == inspection.ByOutput {
		l.reaper.kernel.ask(s.conn.Fd(), &ev)
		info.Output = s.conn.OutboundBuffered() + max(ev.Queued, 0)
	}
	if !i.First.Admits(info) {
		return
	}
	if i.Query.By != inspection.ByOutput {
		l.reaper.kernel.ask(s.conn.Fd(), &ev)
	}
	i.First.Add(l.complete(info, id, s, &ev))
}

// info returns what is known of a connection at an instant, without a question to the kernel.
func (l *loop) info(s *state, f *verdict.Facts, now mono.Time) ConnInfo {
	i := inspection.Info(f, now)
	if due, ok := l.wheel.Deadline(s.timer); ok {
		i.Due = max(mono.Time(due).Sub(now), 0)
	}
	return i
}

// complete adds what only listed connections need.
func (l *loop) complete(i ConnInfo, id uint32, s *state, ev *verdict.Evidence) ConnInfo {
	i.ID, i.Remote = l.connID(id, s), l.remote(s)
	i.Output = s.conn.OutboundBuffered()
	inspection.AddEvidence(&i, ev)
	return i
}

// remote returns the address that reports show for a connection.
func (l *loop) remote(s *state) net.Addr {
	if addr, ok := l.remotes[s]; ok {
		return addr
	}
	return s.conn.RemoteAddr()
}

// ErrBadConnID is returned by Kick for a text that is not a ConnID.
var ErrBadConnID = reap.ErrBadConnID

// ConnID names a connection of a Reaper, for [Reaper.Kick]. See [reap.ConnID].
type ConnID = reap.ConnID

// connID returns the ID of a connection.
func (l *loop) connID(id uint32, s *state) ConnID {
	return inspection.NewConnID(l.number, id, uint32(s.Opened()))
}

// Kick closes a connection, held and exempt ones too, and returns when OnClose has returned.
// OnClose gets a [ReapError] with the reason [Kicked]. The error is [ErrNotWatched] if there is no
// such connection any more, [ErrOnLoop] on the goroutine of an event loop, [ErrBadConnID] if id is
// not written like one, or that of ctx if ctx ends first. Safe for concurrent use.
func (r *Reaper) Kick(ctx context.Context, id ConnID) error {
	number, state, opened, err := inspection.ParseConnID(id)
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
