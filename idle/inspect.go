package idle

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/watch"
)

// ErrOnLoop is returned by Inspect and Kick if they must wait for event loops and are called on the
// goroutine of an event loop, of any gnet engine: the goroutines of two engines look the same.
var ErrOnLoop = errors.New("idle: called on the goroutine of an event loop, which would wait for itself: call it on another goroutine")

// Inspect looks at the connections, and changes nothing. It goes through the event loops one after
// the other, in tasks of up to half a millisecond, a tenth of a second in all for a million
// connections. A connection that opens or closes meanwhile may be missing. A ring costs its loop 5
// ns per connection, or 20 ns if there are a million, in one task.
//
// The error is that of ctx if ctx ends first, [ErrOnLoop] on the goroutine of an event loop, or
// says what is wrong with the Query. Safe for concurrent use.
func (r *Reaper) Inspect(ctx context.Context, q Query) (Inspection, error) {
	i, err := r.watch.NewInspector(q)
	if err != nil {
		return Inspection{}, err
	}
	if err := ctx.Err(); err != nil { // a loop might answer all the same, or there may be none
		return watch.Failed(), err
	}
	for _, l := range r.registry.Load().loops {
		if err := r.inspect(ctx, l, i); err != nil && err != errEmpty {
			return watch.Failed(), err
		}
	}
	return i.Result(), nil
}

// stepsPerTask is how many steps of an inspection are made in one task: about half a millisecond.
const stepsPerTask = 4

// inspect shows the connections and the ring of a loop to an inspector, in small tasks.
func (r *Reaper) inspect(ctx context.Context, l *loop, i *watch.Inspector) error {
	for next, more := uint32(0), i.Lists() || i.Query.Sectors > 0 || i.Query.Silences; more; {
		err := r.runOn(ctx, l, func() {
			for n := 0; more && n < stepsPerTask; n++ {
				next, more = l.Inspect(next, i)
			}
		})
		if err == errEmpty && i.Query.Sectors > 0 {
			i.AddRing(r.watch.EmptyRing(l.Number, i.Query.Sectors, l.published.read().Reaped.Export()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Kick closes a connection, held, exempt and observed ones too, and returns when OnClose has
// returned. OnClose gets a [ReapError] with the reason reap.Kicked. The error is [ErrNotWatched] if
// there is no such connection any more, [ErrOnLoop] on the goroutine of an event loop,
// [ErrBadConnID] if id is not written like one, or that of ctx if ctx ends first. Safe for
// concurrent use.
func (r *Reaper) Kick(ctx context.Context, id ConnID) error {
	return r.watch.Kick(ctx, id, func(shard, number, tag uint32) (found bool, err error) {
		loops := r.registry.Load().loops
		if n := slices.IndexFunc(loops, func(l *loop) bool { return l.Number == shard }); n >= 0 {
			err = r.runOn(ctx, loops[n], func() { found = loops[n].Kick(number, tag) })
		}
		if err == errEmpty {
			err = nil
		}
		return found, err
	})
}

// alivePoll is the interval at which runOn checks that a loop that does not answer still exists.
const alivePoll = 100 * time.Millisecond

// errEmpty is the error of runOn if a loop has no connections, or loses them all before the task
// runs: gnet may have dropped the task then.
var errEmpty = errors.New("idle: the event loop has no connections")

// runOn runs a function on a loop and waits for it.
func (r *Reaper) runOn(ctx context.Context, l *loop, do func()) (err error) {
	switch root := rootOfStack(); {
	case !r.isLive(l):
		return errEmpty
	case slices.ContainsFunc(r.registry.Load().loops, func(l *loop) bool { return l.root == root }):
		return ErrOnLoop
	}
	done := make(chan struct{})
	var taken atomic.Bool // by the task, or by this call, which does not want it any more
	task := func(context.Context) error {
		if taken.Swap(true) {
			return nil
		}
		defer close(done)
		do()
		l.publish(l.clock.Stamp()) // callers read the counters as well
		return l.stop
	}
	if err := r.execute(ctx, l, task); err != nil {
		return err
	}
	poll, ended := time.Tick(alivePoll), ctx.Done()
	for {
		select {
		case <-done:
			return nil
		case <-ended:
			err, ended = ctx.Err(), nil
		case <-poll:
			if !r.isLive(l) {
				err = errEmpty
			}
		}
		if err != nil && !taken.Swap(true) { // otherwise it runs now
			return err
		}
	}
}

// isLive reports whether a loop has connections, so that gnet runs its tasks.
func (r *Reaper) isLive(l *loop) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live[l]
}

func (r *Reaper) execute(ctx context.Context, l *loop, task func(context.Context) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.live[l] {
		return errEmpty
	}
	return l.el.Execute(ctx, gnet.RunnableFunc(task))
}
