package idle

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// ConnID names a connection of a Reaper, for [Reaper.Kick]. No two connections have the same one. That of a connection changes when it
// gets older than 2^30 ticks, which are 3.4 years of 100 ms.
type ConnID struct {
	loop, state, opened uint32 // a state is not used by two that were opened in the same tick
}

// String returns it as ParseConnID reads it.
func (id ConnID) String() string { return fmt.Sprintf("%d-%d-%d", id.loop, id.state, id.opened) }

// MarshalText returns it as ParseConnID reads it.
func (id ConnID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// ParseConnID is the inverse of ConnID.String.
func ParseConnID(s string) (ConnID, error) {
	var n [3]uint32
	parts := strings.Split(s, "-")
	for i, part := range parts {
		number, err := strconv.ParseUint(part, 10, 32)
		if err != nil || len(parts) != len(n) {
			return ConnID{}, fmt.Errorf("idle: %q is no connection: it is written as 1-23-456", s)
		}
		n[i] = uint32(number)
	}
	return ConnID{n[0], n[1], n[2]}, nil
}

// ConnInfo is what a Reaper knows of a connection.
type ConnInfo struct {
	ID        ConnID
	Remote    net.Addr
	Age       time.Duration
	ReadIdle  time.Duration // since the peer was heard, to within a tick
	WriteIdle time.Duration // since something was sent
	Received  uint64        // bytes that have come; Linux and TCP, as the next one
	Sent      uint64        // bytes that the peer has acknowledged
	Output    int           // bytes that wait for the peer, in gnet's buffer and in the kernel where it can be told
	State     ConnState
	Due       time.Duration // until it is looked at next
	Missed    int           // heartbeats without an answer
}

// ConnState is the state of a connection, where several apply the first of this list.
type ConnState string

// The states of a connection.
const (
	StateExempt    ConnState = "exempt"    // by Exempt
	StateObserved  ConnState = "observed"  // ObserveOnly has spared it
	StateLeaving   ConnState = "leaving"   // MaxAge was reached
	StateHeld      ConnState = "held"      // by Hold
	StateStalled   ConnState = "stalled"   // output waits, as of the last look; only with limits of output
	StateHandshake ConnState = "handshake" // MarkReady is to come; only with HandshakeTimeout
	StateOpen      ConnState = "open"
)

// ConnStates returns all states.
func ConnStates() []ConnState {
	return []ConnState{StateExempt, StateObserved, StateLeaving, StateHeld, StateStalled, StateHandshake, StateOpen}
}

// Order says which connections a Snapshot shows.
type Order string

// The orders of a Snapshot.
const (
	LongestIdle Order = "idle"   // those that were heard longest ago
	Oldest      Order = "age"    // those that were opened longest ago
	MostOutput  Order = "output" // those for which most output waits
)

// key returns what the order compares: the larger, the sooner it is shown.
func (o Order) key(i *ConnInfo) int64 {
	switch o {
	case Oldest:
		return int64(i.Age)
	case MostOutput:
		return int64(i.Output)
	default:
		return int64(i.ReadIdle)
	}
}

// snapshotStep is how many connections are looked at in one task: about half a millisecond.
const snapshotStep = 1 << 10

// Snapshot returns up to so many connections, the first ones in an order. It goes through the loops one after the other, in small
// tasks, so that nothing stops meanwhile: what comes and goes at the same time may be in or not. It returns the error of ctx if
// that is over first. Safe for concurrent use, but not from an event loop, for which it would wait.
func (r *Reaper) Snapshot(ctx context.Context, by Order, limit int) ([]ConnInfo, error) {
	switch by {
	case LongestIdle, Oldest, MostOutput:
	default:
		return nil, fmt.Errorf("idle: no order %q: take %s, %s or %s", by, LongestIdle, Oldest, MostOutput)
	}
	if limit <= 0 {
		return nil, nil
	}
	top := &ranking{by: by, now: r.clock.Elapsed()}
	err := r.pass(ctx, func(l *loop, id uint32, s *state) { l.rank(top, id, s, limit) })
	if err != nil {
		return nil, err
	}
	all := make([]ConnInfo, len(top.all))
	for i := len(all) - 1; i >= 0; i-- {
		all[i] = heap.Pop(top).(ConnInfo)
	}
	return all, nil
}

// pass shows all connections to a function, on their loops, in small tasks.
func (r *Reaper) pass(ctx context.Context, show func(*loop, uint32, *state)) error {
	for _, l := range r.registry.Load().loops {
		for from := uint32(0); ; from += snapshotStep {
			more := false
			ran, err := r.ask(ctx, l, func() { more = l.show(from, show) })
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

// show is one step of a pass. It reports whether there are more.
func (l *loop) show(from uint32, to func(*loop, uint32, *state)) (more bool) {
	end := min(from+snapshotStep, l.states.used)
	for id := from; id < end; id++ {
		if s := l.states.at(id); s.used() {
			to(l, id, s)
		}
	}
	return end < l.states.used
}

// Kick closes a connection with Kicked. It returns ErrNotWatched if there is none of that name any more. Safe for concurrent
// use, but not from an event loop, for which it would wait.
func (r *Reaper) Kick(ctx context.Context, id ConnID) error {
	for _, l := range r.registry.Load().loops {
		if l.number != id.loop {
			continue
		}
		found := false
		_, err := r.ask(ctx, l, func() {
			if id.state >= l.states.used {
				return
			}
			if s := l.states.at(id.state); s.used() && s.instants[atOpened] == id.opened {
				found = true
				l.reap(s, &ReapError{Reason: Kicked})
			}
		})
		if err == nil && !found {
			return ErrNotWatched
		}
		return err
	}
	return ErrNotWatched
}

// ask runs a function on a loop and waits for it. It reports false if the loop has no connections, or loses them all before:
// gnet may have dropped the task then.
func (r *Reaper) ask(ctx context.Context, l *loop, do func()) (ran bool, err error) {
	done := make(chan struct{})
	var taken atomic.Bool // by the task, or by us, who do not want it any more
	task := func(context.Context) error {
		if taken.Swap(true) {
			return nil
		}
		defer close(done)
		l.stop = nil
		do()
		l.publish(l.clock.Stamp()) // callers look at the counters as well
		return l.stop
	}
	r.mu.Lock()
	if l.live {
		err = l.el.Execute(ctx, gnet.RunnableFunc(task))
	}
	live := l.live
	r.mu.Unlock()
	if !live || err != nil {
		return false, err
	}
	look := time.NewTicker(askAgain)
	defer look.Stop()
	for {
		select {
		case <-done:
			return true, nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-look.C:
			r.mu.Lock()
			live = l.live
			r.mu.Unlock()
		}
		if (err != nil || !live) && !taken.Swap(true) { // otherwise it runs now
			return false, err
		}
	}
}

// askAgain is how often is looked whether a loop is still there that does not answer.
const askAgain = 100 * time.Millisecond

// rank keeps a connection if it is one of the first.
func (l *loop) rank(top *ranking, id uint32, s *state, limit int) {
	i := l.info(id, s, top)
	if len(top.all) == limit {
		if top.by.key(&i) <= top.by.key(&top.all[0]) {
			return
		}
		heap.Pop(top)
	}
	heap.Push(top, l.complete(i, s))
}

// info returns what is known of a connection without asking the kernel, unless the order needs it. All are as of one moment: who was
// heard at the same time is idle for as long.
func (l *loop) info(id uint32, s *state, top *ranking) ConnInfo {
	row, _ := l.table.find(l.conn(s))
	f := l.facts(row, id, s, l.clock.Elapsed())
	now := top.now
	i := ConnInfo{
		ID: ConnID{l.number, id, s.instants[atOpened]}, Age: max(now-f.Opened.To, 0), ReadIdle: max(now-f.Heard.To, 0),
		WriteIdle: max(now-f.Wrote.To, 0), State: stateOf(s, &f, l.limitsOf(s)), Missed: f.Missed,
	}
	if due, ok := l.wheel.Deadline(s.timer); ok {
		i.Due = max(due-now, 0)
	}
	if top.by == MostOutput {
		l.reaper.kernel.ask(l.conn(s).Fd(), &l.evidence)
		i.Output = l.conn(s).OutboundBuffered() + max(l.evidence.Queued, 0)
	}
	return i
}

// complete adds what only those need that are shown.
func (l *loop) complete(i ConnInfo, s *state) ConnInfo {
	i.Remote = l.conn(s).RemoteAddr()
	ev := &l.evidence
	l.reaper.kernel.ask(l.conn(s).Fd(), ev)
	i.Output = l.conn(s).OutboundBuffered() + max(ev.Queued, 0)
	i.Received, i.Sent = ev.Received, ev.Acked
	if ev.Dated {
		i.ReadIdle = min(i.ReadIdle, ev.Silent)
		i.Age = max(i.Age, i.ReadIdle) // it is kept in whole ticks
		i.WriteIdle = ev.Quiet
	}
	return i
}

func stateOf(s *state, f *verdict.Facts, lim *limits) ConnState {
	switch {
	case s.flags.has(exempt):
		return StateExempt
	case s.flags.has(observed):
		return StateObserved
	case f.Leaving:
		return StateLeaving
	case f.Held:
		return StateHeld
	case f.StalledSince != 0:
		return StateStalled
	case !f.Ready && lim.Handshake > 0:
		return StateHandshake
	}
	return StateOpen
}

// A ranking is a heap of the connections that come first in an order, the last of them at its top.
type ranking struct {
	by  Order
	now time.Duration
	all []ConnInfo
}

func (r *ranking) Len() int           { return len(r.all) }
func (r *ranking) Swap(i, j int)      { r.all[i], r.all[j] = r.all[j], r.all[i] }
func (r *ranking) Less(i, j int) bool { return cmp.Less(r.by.key(&r.all[i]), r.by.key(&r.all[j])) }
func (r *ranking) Push(x any)         { r.all = append(r.all, x.(ConnInfo)) }

func (r *ranking) Pop() any {
	last := len(r.all) - 1
	x := r.all[last]
	r.all = r.all[:last]
	return x
}
