package idle

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/conntimer"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/internal/watch"
)

// never is the deadline that never passes.
const never = verdict.Never

// A conn is what a loop keeps of a connection. Front is gnet's own, or a wrapper that hides it. Own
// is how many bytes the handler has left in gnet's buffer, if the record has the flag Leftover.
type conn = watch.Conn[gnet.Conn]

// A loop is the Reaper's part of one event loop of gnet. Except where otherwise noted, the loop
// goroutine owns all of it.
type loop struct {
	watch.Shard[gnet.Conn]

	// Immutable.
	clock  *mono.Clock
	kernel *questions
	el     gnet.EventLoop
	root   stackRoot // of the loop goroutine

	table   conntable.Table
	timers  *conntimer.Timers[*conn]
	isPong  func(gnet.Conn) bool // of the Config
	layers  layers
	refused refusals
	closing closing      // the connection that is being closed
	stop    error        // gnet's request to shut down, which the task must return
	heardAt atomic.Int64 // the stamp at which a peer was heard last; for all goroutines

	crowd     *crowd
	shedder   shedder
	busy      busyCount
	outputs   outputs
	task      taskState
	published published
}

// A closing is the connection that gnet is told to close, and the reason why.
type closing struct {
	conn   *conn
	reason *ReapError
}

func (l *loop) config() *Config { return l.Set.Front.(*Config) }

// find returns the connection of gnet, which is in the table.
func (l *loop) find(c gnet.Conn) (r *conntable.Record, id uint32, s *conn) {
	r, id = l.table.Find(key(c))
	return r, id, l.At(id)
}

// drop forgets a connection that has no record any more.
func (l *loop) drop(id uint32, s *conn) {
	l.timers.Drop(s)
	l.outputs.set(id, 0)
	l.outputs.marks.revisit(id, false, l.clock)
	marker{l}.setWritable(s, true)
	delete(l.layers, s)
	l.Remove(id, s)
}

// noteHeard records that a peer was heard. A quiet loop is swept soon, because answers may follow.
func (l *loop) noteHeard(stamp mono.Stamp) {
	l.heardAt.Store(max(l.heardAt.Load(), int64(stamp)))
	if l.outputs.wakeUp(l.clock.Elapsed) {
		l.task.setDue(min(l.task.due, l.outputs.due))
	}
}

// countLastRead counts a message if the handler has closed its connection.
func (l *loop) countLastRead(heard bool) {
	if heard {
		l.Counters.Reads++
		now := l.clock.Stamp()
		l.noteHeard(now)
		l.publish(now)
	}
}

// endSilence counts a silence that ends with new bytes of a connection, if it is long. Usually it
// is not, and the call is inlined.
func (l *loop) endSilence(c gnet.Conn, r *conntable.Record, now mono.Stamp) {
	if now.Short()-r.Heard >= l.LeastSilence {
		l.countSilence(c)
	}
}

func (l *loop) countSilence(c gnet.Conn) {
	_, id, s := l.find(c)
	l.EndSilence(id, s)
}

// noteLeftover records how many bytes the handler left in gnet's buffer. Usually there are none,
// and the call is inlined.
func (l *loop) noteLeftover(r *conntable.Record, c gnet.Conn, bytes int) {
	if bytes != 0 || r.Has(conntable.Leftover) {
		l.setLeftover(c, bytes)
	}
}

func (l *loop) setLeftover(c gnet.Conn, bytes int) {
	r, _, s := l.find(c)
	r.Set(conntable.Leftover, bytes != 0)
	s.Own = uint32(bytes)
}

// isHeard reports whether there are new bytes. The record has the flag Leftover or Fresh.
func (l *loop) isHeard(r *conntable.Record, c gnet.Conn, buffered int) bool {
	heard := buffered > 0
	if r.Has(conntable.Leftover) {
		_, _, s := l.find(c)
		heard = s.Own != uint32(buffered)
	}
	if heard {
		r.Set(conntable.Fresh, false)
	}
	return heard
}

// halt makes the task return a request to shut the engine down. No connection is looked at any
// more.
func (l *loop) halt(err error) { l.stop, l.Halted = err, true }

// nextLook returns when the next connection is looked at, or the next timer is due.
func (l *loop) nextLook() mono.Time {
	next := l.Schedule.NextDue()
	if due, ok := l.timers.NextDue(); ok {
		next = min(next, due)
	}
	return next
}

// nextDue returns when the loop needs the next task. It is in the past if there is work left.
func (l *loop) nextDue() mono.Time {
	if l.outputs.isSweeping() || l.outputs.mustShed() || l.busy.count != nil || !l.IsAdapted() {
		return 0
	}
	return min(l.nextLook(), l.outputs.due, l.outputs.marks.due, l.Groups.Due())
}

// plan makes sure that a task comes in time for the next look.
func (l *loop) plan() { l.task.setDue(min(l.task.due, l.nextDue())) }

// publish copies the counters for other goroutines.
func (l *loop) publish(now mono.Stamp) { l.published.store(l.Count(), now) }

// A published is the copy of a loop's counters for other goroutines. It is made once per tick: an
// atomic addition per message would cost as much as the rest of a heartbeat.
type published struct {
	at mono.Stamp // of the copy; owned by the loop goroutine

	mu    sync.Mutex
	stats watch.Counters // guarded by mu
}

func (p *published) store(c *watch.Counters, now mono.Stamp) {
	p.at = now
	p.mu.Lock()
	p.stats = *c
	p.mu.Unlock()
}

func (p *published) read() *watch.Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := p.stats
	return &stats
}

// A stackRoot names the functions at the root of the stack of a goroutine. Those of an event loop
// are the ones that gnet has started it with.
type stackRoot [3]uintptr

// rootOfStack returns the root of the stack of this goroutine.
func rootOfStack() (root stackRoot) {
	pcs := make([]uintptr, 64)
	n := runtime.Callers(1, pcs)
	for n == len(pcs) {
		pcs = make([]uintptr, 2*n)
		n = runtime.Callers(1, pcs)
	}
	frames := runtime.CallersFrames(pcs[:n])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		root[0], root[1], root[2] = root[1], root[2], f.Entry
	}
	return root
}
