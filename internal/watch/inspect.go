package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/connstate"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/silence"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

const byOutput = "output"

// orders are the values of Query.By, and what each compares: the larger, the sooner it is listed.
var orders = map[string]func(i *reap.ConnInfo) int64{
	"idle":   func(i *reap.ConnInfo) int64 { return int64(i.ReadIdle) },
	"age":    func(i *reap.ConnInfo) int64 { return int64(i.Age) },
	byOutput: func(i *reap.ConnInfo) int64 { return int64(i.Output) },
}

// An Inspector collects what an Inspect finds. Not safe for concurrent use.
type Inspector struct {
	Query   reap.Query
	watcher *Watcher
	now     mono.Time
	first   *First[reap.ConnInfo]
	found   reap.Inspection
}

// NewInspector returns an Inspector, or an error that joins all that is wrong with a Query.
func (w *Watcher) NewInspector(q reap.Query) (*Inspector, error) {
	q.By = cmp.Or(q.By, "idle")
	key := orders[q.By]
	var errs []error
	if key == nil {
		errs = append(errs, fmt.Errorf("%s: Query.By is %q: set idle, age or output", w.form.Package, q.By))
	}
	if q.Limit < 0 {
		errs = append(errs, fmt.Errorf("%s: Query.Limit is %d: set a positive number, or 0 for no list", w.form.Package, q.Limit))
	}
	if q.Sectors < 0 {
		errs = append(errs, fmt.Errorf("%s: Query.Sectors is %d: set a positive number, or 0 for no rings", w.form.Package, q.Sectors))
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	i := &Inspector{Query: q, now: w.Clock.Elapsed(), watcher: w}
	i.first = NewFirst(q.Limit, func(a, b reap.ConnInfo) int { return cmp.Compare(key(&b), key(&a)) })
	if q.States {
		i.found.States = newStates()
	}
	if set := w.Settings(); q.Silences {
		i.found.Silences = reap.Silences{
			Timeout: set.idleTimeout(), Least: time.Duration(set.leastSilence()+1) * set.Tick,
			Living: make([]uint32, silence.Buckets), Ended: make([]uint32, silence.Buckets), Sampled: w.form.AsksFirst,
		}
	}
	return i, nil
}

// Lists reports whether the Query needs all connections.
func (i *Inspector) Lists() bool { return i.Query.Limit > 0 || i.Query.States }

// Failed returns what is found if not all connections could be inspected: a part of the counts
// would be wrong.
func Failed() reap.Inspection { return reap.Inspection{States: newStates()} }

// AddRing adds the ring of a shard.
func (i *Inspector) AddRing(ring reap.Ring) { i.found.Rings = append(i.found.Rings, ring) }

// Result returns what was found.
func (i *Inspector) Result() reap.Inspection {
	slices.SortFunc(i.found.Rings, func(a, b reap.Ring) int { return cmp.Compare(a.Loop, b.Loop) })
	if i.Query.Closed {
		i.found.Closed = i.watcher.Closed.Newest(i.watcher.Settings().KeepClosed)
	}
	i.found.Connections = i.first.Sorted()
	return i.found
}

// inspectStep is how many connections Inspect inspects at a time: about half a millisecond.
const inspectStep = 1 << 8

// Inspect inspects the connections from a number on, and at the end the ring. It returns the number
// at which to go on, and false if there is nothing more.
func (s *Shard[C]) Inspect(from uint32, i *Inspector) (next uint32, more bool) {
	if i.Lists() {
		for next = from; next < min(from+inspectStep, s.Len()); next++ {
			if c := s.conns.at(next); c.Used() {
				inspect(i, s, next, c)
			}
		}
	}
	if next > from {
		return next, true
	}
	if i.Query.Sectors > 0 {
		i.AddRing(s.Ring(i.Query.Sectors))
	}
	if i.Query.Silences {
		s.addSilences(&i.found.Silences)
	}
	return next, false
}

func inspect[C any](i *Inspector, s *Shard[C], id uint32, c *Conn[C]) {
	f := s.Facts(id, c, s.clock.Elapsed())
	state := stateOf(&c.State, &f, &s.LimitsOf(c).Limits)
	due, _ := s.Schedule.wheel.Deadline(c.timer)
	if i.Query.States {
		i.found.States[state]++
		if mono.Time(due) <= s.clock.Read() {
			i.found.Overdue++
		}
	}
	if i.Query.Limit > 0 {
		info := reap.ConnInfo{
			State: state, Age: max(i.now.Sub(f.Opened.To), 0), ReadIdle: max(i.now.Sub(f.Heard.To), 0),
			WriteIdle: max(i.now.Sub(f.Wrote.To), 0), Missed: f.Missed, Due: max(mono.Time(due).Sub(i.now), 0),
			Unwritable: c.Is(connstate.Unwritable),
		}
		list(i, s, info, id, c, &f)
	}
}

// list adds a connection to the list if it is one of the first. What the kernel knows never makes a
// silence longer, but it may make output more.
func list[C any](i *Inspector, s *Shard[C], info reap.ConnInfo, id uint32, c *Conn[C], f *verdict.Facts) {
	first := i.Query.By == byOutput
	if info.Output = s.port.Output(c); first {
		addEvidence(&info, s, c, f)
	}
	if !i.first.Admits(info) {
		return
	}
	if !first {
		addEvidence(&info, s, c, f)
	}
	info.ID, info.Remote = s.ID(id, c), s.Remotes.of(c, s.port)
	i.first.Add(info)
}

// newStates returns the number 0 for each state of a connection.
func newStates() map[string]int {
	return map[string]int{"exempt": 0, "observed": 0, "leaving": 0, "held": 0, "stalled": 0, "handshake": 0, "open": 0}
}

// stateOf returns the state of a connection, the first that applies.
func stateOf(s *connstate.State, f *verdict.Facts, lim *verdict.Limits) string {
	switch {
	case s.Is(connstate.Exempt):
		return "exempt"
	case s.Is(connstate.Observed):
		return "observed"
	case f.Leaving:
		return "leaving"
	case f.Held:
		return "held"
	case f.StalledSince != 0 && lim.PollOutput() > 0:
		return "stalled"
	case !f.Ready && lim.Handshake > 0:
		return "handshake"
	}
	return "open"
}

// addEvidence adds the answer of the kernel, which may be newer than the last look.
func addEvidence[C any](i *reap.ConnInfo, s *Shard[C], c *Conn[C], f *verdict.Facts) {
	ev := &verdict.Evidence{Queued: -1} // not that of the Shard: a look may be using it
	s.port.Ask(c, ev)                   // if it is closed, nothing more is known
	if i.Output += max(ev.Queued, 0); ev.Queued >= 0 && i.Output == 0 {
		f.StalledSince = 0
		i.State = stateOf(&c.State, f, &s.LimitsOf(c).Limits)
	}
	i.Received, i.Sent = ev.Received, ev.Acked
	if ev.Dated {
		if s.asks && ev.Silent < i.ReadIdle {
			i.Missed = 0 // it was heard since then
		}
		i.ReadIdle = min(i.ReadIdle, ev.Silent)
		i.Age = max(i.Age, i.ReadIdle) // it is kept in whole ticks
		i.WriteIdle = ev.Quiet
	}
}

// ID returns the name of a connection: the number of the Shard, that of the connection, and its
// tag.
func (s *Shard[C]) ID(id uint32, c *Conn[C]) reap.ConnID { return connID(s.Number, id, s.tag(c)) }

// tag tells a connection from others that had its number before, in other Watchers too. No two
// connections of a Shard have the same timer.
func (s *Shard[C]) tag(c *Conn[C]) uint32 {
	return uint32(connstate.Mix(uint64(c.timer) ^ s.Watcher.salt))
}

func connID(shard, number, tag uint32) reap.ConnID {
	return reap.ConnID(fmt.Sprintf("%d-%d-%d", shard, number, tag))
}

// Kick closes the connection with an ID, unless ctx has ended. The front end finds it by the number
// of its Shard, its own number, and its tag.
func (w *Watcher) Kick(ctx context.Context, id reap.ConnID, kick func(shard, number, tag uint32) (found bool, err error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var shard, number, tag uint32
	_, _ = fmt.Sscanf(string(id), "%d-%d-%d", &shard, &number, &tag) // after an error the numbers are others
	if connID(shard, number, tag) != id {
		return fmt.Errorf("%s: %w: %.60q", w.form.Package, reap.ErrBadConnID, string(id))
	}
	found, err := kick(shard, number, tag)
	if err == nil && !found {
		return w.form.NotWatched()
	}
	return err
}

// Ring returns a picture of the wheel, with at most the given number of sectors.
func (s *Shard[C]) Ring(sectors int) reap.Ring {
	ring := newRing(s.Set.turn(), s.clock.Tick(), sectors, s.clock.Elapsed(), s.Schedule.wheel.Deadlines())
	ring.Loop, ring.Connections, ring.Reaped = int(s.Number), s.Open, s.Counters.Reaped.Export()
	return ring
}

// EmptyRing returns the ring of a shard without connections, for any goroutine.
func (w *Watcher) EmptyRing(number uint32, sectors int, reaped reap.Counts) reap.Ring {
	ring := newRing(w.Settings().turn(), w.Clock.Tick(), sectors, w.Clock.Elapsed(), func(func(time.Duration) bool) {})
	ring.Loop, ring.Reaped = int(number), reaped
	return ring
}

// turn returns the usual distance of deadlines from now: the longest of the timeouts that count
// from the last activity, or else the longest duration of the Config.
func (set *Settings) turn() (longest time.Duration) {
	lim := &set.Config.Limits
	if active := max(lim.Read, lim.Write, lim.All, lim.Heartbeat.Interval); active > 0 {
		return active + verdict.Share(active, lim.Jitter)
	}
	for _, s := range set.form.Table.Deadlines(set.Front) {
		longest = max(longest, s.Value)
	}
	return min(longest, set.Horizon)
}

// newRing returns the ring of a wheel with the given deadlines. It has at most the given number of
// sectors, which together are at least a turn.
func newRing(turn, tick time.Duration, sectors int, now mono.Time, deadlines iter.Seq[time.Duration]) reap.Ring {
	ticks := int(turn/tick) + 2 // the clock and the wheel round up
	sectors = min(sectors, ticks)
	n := (ticks + sectors - 1) / sectors
	width := time.Duration(n) * tick
	sectors = (ticks + n - 1) / n
	ring := reap.Ring{Turn: width * time.Duration(sectors), Now: time.Duration(now), Sectors: make([]int, sectors)}
	for due := range deadlines {
		if due-ring.Now >= ring.Turn {
			ring.Later++
			continue
		}
		ring.Sectors[due/width%time.Duration(sectors)]++
	}
	return ring
}
