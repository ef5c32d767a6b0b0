package idlenet

import (
	"context"
	"net"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/inspection"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// A ConnID names a connection of a Listener, for [Listener.Kick]. See [reap.ConnID].
type ConnID = reap.ConnID

// ErrBadConnID is returned by Kick for a text that is not a ConnID.
var ErrBadConnID = reap.ErrBadConnID

func (s *shard) connID(id uint32, n *conn) ConnID {
	return inspection.NewConnID(s.number+1, id, uint32(n.Opened()))
}

// inspectStep is how many connections are inspected under one lock.
const inspectStep = 1 << 8

// Inspect looks at the connections, and changes nothing. There is a ring for each part of the
// connections, one per processor. A connection that opens or closes meanwhile may be missing. The
// error is that of ctx if ctx ends first, or says what is wrong with the Query.
func (l *Listener) Inspect(ctx context.Context, q reap.Query) (reap.Inspection, error) {
	i, err := inspection.New(q, l.clock.Elapsed())
	if err != nil {
		return reap.Inspection{}, err
	}
	if q.Limit > 0 || q.States {
		for _, s := range l.shards {
			for from, more := uint32(0), true; more; from += inspectStep {
				if err := ctx.Err(); err != nil {
					return reap.Inspection{States: inspection.NewStates()}, err
				}
				more = s.inspect(from, i)
			}
		}
	}
	if q.Sectors > 0 {
		for _, s := range l.shards {
			i.Found.Rings = append(i.Found.Rings, s.ring(q.Sectors))
		}
	}
	if q.Closed {
		i.Found.Closed = l.lastClosed()
	}
	return i.Result(), nil
}

// inspect inspects connections from an id on. It reports whether there are more.
func (s *shard) inspect(from uint32, i *inspection.Inspector) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := min(from+inspectStep, s.conns.Len())
	for id := from; id < end; id++ {
		if n := s.conns.At(id); n.used() && (s.ends[id] == nil || !s.ends[id].closed) {
			s.inspectOne(i, id, n)
		}
	}
	return end < s.conns.Len()
}

func (s *shard) inspectOne(i *inspection.Inspector, id uint32, n *conn) {
	l, lim := s.listener, &s.listener.settings.Load().limits
	f := n.facts(l, lim, id, l.clock.Elapsed())
	state := inspection.StateOf(&n.State, &f, lim)
	due, filed := s.wheel.Deadline(n.timer)
	if i.Query.States {
		i.Found.States[state]++
		if filed && mono.Time(due) <= l.clock.Read() {
			i.Found.Overdue++
		}
	}
	if i.Query.Limit == 0 {
		return
	}
	info, ev := inspection.Info(&f, i.Now), new(verdict.Evidence)
	if filed {
		info.Due = max(mono.Time(due).Sub(i.Now), 0)
	}
	info.State = state
	if l.ask(n.conn, 0, ev) { // the kernel knows best when the peer was heard
		inspection.AddEvidence(&info, ev)
	}
	info.ID, info.Remote = s.connID(id, n), n.conn.RemoteAddr()
	i.First.Add(info)
}

// ring returns a picture of the wheel.
func (s *shard) ring(sectors int) reap.Ring {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listener
	cfg := &l.settings.Load().cfg
	active := max(cfg.ReadTimeout, cfg.WriteTimeout, cfg.AllTimeout, cfg.Heartbeat.Interval)
	turn := inspection.Turn(active, cfg.Jitter, configtable.Net.Deadlines(cfg), cfg.horizon())
	ring := inspection.NewRing(s.number+1, turn, l.clock.Tick(), sectors, l.clock.Elapsed(), s.wheel.Deadlines())
	ring.Connections, ring.Reaped = s.wheel.Len(), s.counters.Reaped.Export()
	return ring
}

// Kick ends a connection, held ones too, with the reason [Kicked]. The error is [ErrNotWatched] if
// there is no such connection any more, or [ErrBadConnID] if id is not written like one. The
// context is not used.
func (l *Listener) Kick(_ context.Context, id ConnID) error {
	group, number, opened, err := inspection.ParseConnID(id)
	if err != nil {
		return err
	}
	if group == 0 || int(group) > len(l.shards) {
		return ErrNotWatched
	}
	s := l.shards[group-1]
	if !s.kick(number, opened) {
		return ErrNotWatched
	}
	l.poke()
	return nil
}

func (s *shard) kick(number, opened uint32) (found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number >= s.conns.Len() {
		return false
	}
	n := s.conns.At(number)
	if !n.used() || uint32(n.Opened()) != opened || s.ends[number] != nil {
		return false
	}
	s.end(number, n, &ReapError{Reason: Kicked})
	return true
}

// ID returns the name of a connection for [Listener.Kick] and reports, or "" if the Listener does
// not watch it.
func (l *Listener) ID(c net.Conn) (id ConnID) {
	l.with(c, func(s *shard, number uint32, n *conn) { id = s.connID(number, n) })
	return id
}
