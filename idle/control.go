package idle

import (
	"fmt"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// The methods of this file are for the handler: they are called on the loop goroutine of the connection, that is, from its
// OnOpen, OnTraffic, OnClose and OnIdle, from the callback of AsyncWrite, or from a task of c.EventLoop().Execute. They report
// false for a connection that is not watched: it is closed, or a datagram socket.

// MarkReady ends the handshake of a connection: HandshakeTimeout does not apply any more. Called on the loop goroutine of its
// connection.
func (r *Reaper) MarkReady(c gnet.Conn) bool {
	return r.change(c, func(l *loop, s *state) {
		row, _ := l.table.find(l.conn(s))
		row.mark |= ready
	})
}

// Hold says that a request is being worked on, so that the connection is not idle however silent it is, until Release was
// called as often as Hold. All other limits go on, heartbeats included. Called on the loop goroutine of its connection.
func (r *Reaper) Hold(c gnet.Conn) bool {
	l, id, s := r.find(c)
	if s == nil {
		return false
	}
	if s.holds < maxHolds {
		s.holds++
	} else {
		if l.holds == nil {
			l.holds = map[uint32]int{}
		}
		l.holds[id]++
	}
	return true
}

// Release takes one Hold back; after the last one the idle timeouts begin anew, as Touch makes them. More of them than of Hold do
// nothing. Called on the loop goroutine of its connection.
func (r *Reaper) Release(c gnet.Conn) bool {
	l, id, s := r.find(c)
	switch {
	case s == nil:
		return false
	case l.holds[id] > 0:
		if l.holds[id]--; l.holds[id] == 0 {
			delete(l.holds, id)
		}
	case s.holds > 0:
		if s.holds--; s.holds == 0 {
			l.touch(id, s)
		}
	}
	return true
}

// Touch makes the idle timeouts of a connection begin anew, as if bytes had gone both ways just now, and puts off the next heartbeat.
// It is for what cannot be seen: see "What counts as a write" in the package comment. Called on the loop goroutine of its connection.
func (r *Reaper) Touch(c gnet.Conn) bool {
	l, id, s := r.find(c)
	if s == nil {
		return false
	}
	l.touch(id, s)
	return true
}

func (l *loop) touch(id uint32, s *state) {
	now := l.clock.Stamp()
	row, _ := l.table.find(l.conn(s))
	row.heard = uint32(now)
	s.instants[atWrote] = l.clock.PackNow()
	l.rearm(id, s) // it may have been held beyond what the wheel knows
}

// Exempt takes a connection out of all judgement, or back in: then its idle timeouts begin anew, and all other limits count as
// if it had never been out. Called on the loop goroutine of its connection.
func (r *Reaper) Exempt(c gnet.Conn, on bool) bool {
	l, id, s := r.find(c)
	if s == nil {
		return false
	}
	if s.flags.has(exempt) != on {
		s.flags.set(exempt, on)
		s.instants[atStuck], s.instants[atOver] = 0, 0
		l.touch(id, s)
	}
	return true
}

// MarkAlive says that the connection has given a sign of life as [Heartbeat] wants it, where IsPong cannot see it. Called on the
// loop goroutine of its connection.
func (r *Reaper) MarkAlive(c gnet.Conn) bool {
	return r.change(c, func(l *loop, s *state) { l.markAlive(s) })
}

func (l *loop) markAlive(s *state) {
	s.flags.setMissed(0)
	if !s.flags.has(leaving) {
		s.instants[atBeat] = l.clock.PackNow()
	}
}

// BeginMessage says that a message of the peer has begun to come in, to which MinRate applies until EndMessage. A second one
// begins anew. Called on the loop goroutine of its connection.
func (r *Reaper) BeginMessage(c gnet.Conn) bool {
	return r.change(c, func(l *loop, s *state) {
		if rate := l.set.limits.Rate; rate.BytesPerSecond > 0 {
			s.instants[atRated], s.received = l.packAfter(rate.Grace), 0
		}
	})
}

// EndMessage says that the message is complete. With MinRate.Always it begins the next one. Called on the loop goroutine of its
// connection.
func (r *Reaper) EndMessage(c gnet.Conn) bool {
	return r.change(c, func(l *loop, s *state) {
		s.instants[atRated], s.received = 0, 0
		if rate := l.set.limits.Rate; rate.Always {
			s.instants[atRated] = l.packAfter(rate.Grace)
		}
	})
}

// SetTimeouts gives a connection idle timeouts of its own, in the place of those of the Config, for as long as it lives: after a
// login, or for the keep-alive that a client has asked for. Zero is none. They are checked as those of the Config, and rounded
// up to whole ticks. Called on the loop goroutine of its connection.
//
// Connections with the same timeouts share memory. A loop can have 65,535 different ones.
func (r *Reaper) SetTimeouts(c gnet.Conn, t Timeouts) error {
	l, id, s := r.find(c)
	if s == nil {
		return ErrNotWatched
	}
	t, err := r.checkTimeouts(t, l.set)
	if err != nil {
		return err
	}
	old := s.limits
	if s.limits, err = l.limits.take(l.set, t); err != nil {
		s.limits = old
		return err
	}
	l.limits.put(old)
	l.rearm(id, s)
	return nil
}

// checkTimeouts checks timeouts as a Config with them would be, and lets the clock remember as long as they need.
func (r *Reaper) checkTimeouts(t Timeouts, set *settings) (Timeouts, error) {
	cfg := set.cfg
	for _, d := range []*time.Duration{&t.Read, &t.Write, &t.All} {
		if *d > 0 && *d < maxTimeout {
			*d = (*d + cfg.Tick - 1) / cfg.Tick * cfg.Tick
		}
	}
	cfg.ReadTimeout, cfg.WriteTimeout, cfg.AllTimeout = t.Read, t.Write, t.All
	var c checker
	c.durations(&cfg)
	c.tick(&cfg)
	if len(c.errs) > 0 {
		return t, c.err()
	}
	r.own.add(t)
	if need := cfg.memory(); need > r.clock.Memory() {
		r.mu.Lock()
		r.clock.Remember(need)
		r.mu.Unlock()
	}
	return t, nil
}

// find returns the loop of a connection and its state, nil if it is not watched. A connection around
// one that is watched stands for it, and is known from then on.
func (r *Reaper) find(c gnet.Conn) (l *loop, id uint32, s *state) {
	if l = r.registry.Load().find(c.EventLoop()); l == nil {
		return nil, 0, nil
	}
	own, row, id := l.seek(c)
	if row == nil || !l.states.at(id).is(own) {
		if isForeign(own) {
			r.noteForeign(own)
		}
		return nil, 0, nil
	}
	s = l.states.at(id)
	l.setOuter(s, c)
	return l, id, s
}

// change changes the state of a connection and moves its deadline to where it belongs then.
func (r *Reaper) change(c gnet.Conn, do func(*loop, *state)) bool {
	l, id, s := r.find(c)
	if s == nil {
		return false
	}
	do(l, s)
	l.rearm(id, s)
	return true
}

// Update replaces the Config at run time: all of it but Tick, which stays, and MaxConnections, which stays where it is zero and after
// SetMaxConnections. It is checked first, and an error that joins all that is wrong changes nothing. Timeouts of connections that
// SetTimeouts has given stay. Safe for concurrent use.
//
// Connections are not looked at all at once: a loop goes through its own in tasks of half a millisecond, with its other work in
// between, about 5,000 of them per task. What was due by the old Config is judged by the new one from the moment of Update.
func (r *Reaper) Update(cfg Config) error {
	_, err := r.update(cfg, nil)
	return err
}

// Change is Update for who changes some of the Config: edit is given the one of now, with its defaults filled in. It is called again if
// another change comes in between, so that none is lost. It must not call the Reaper. Safe for concurrent use.
func (r *Reaper) Change(edit func(*Config)) error {
	for {
		set := r.settings.Load()
		cfg := r.Config()
		edit(&cfg)
		if done, err := r.update(cfg, set); done || err != nil {
			return err
		}
	}
}

// update replaces the settings, but not if others than those given hold by now. It reports whether it did.
func (r *Reaper) update(cfg Config, only *settings) (done bool, err error) {
	if cfg, err = cfg.check(r.clock.Tick()); err != nil {
		return false, err
	}
	r.mu.Lock()
	old := r.settings.Load()
	if only != nil && only != old {
		r.mu.Unlock()
		return false, nil
	}
	r.clock.Remember(cfg.memory())
	r.settings.Store(old.next(cfg, old.now, r.clock.Elapsed()))
	r.updates++
	if cfg.MaxConnections > 0 && !r.limitIsSet.Load() {
		r.limit.Store(int64(cfg.MaxConnections))
	}
	r.continueSoon()
	r.mu.Unlock()
	cfg.Logger.Info("configuration changed", "idle", cfg)
	return true, nil
}

// ScaleTimeouts shortens the idle timeouts of all connections, those of SetTimeouts included: by is the part of the way from what they are
// to least, from 0, which is none of it and takes it back, to 1. Those that are shorter stay. It is for a server under pressure, and
// survives Update. Connections come to know of it as they do of Update. Safe for concurrent use.
func (r *Reaper) ScaleTimeouts(by float64, least time.Duration) error {
	if !(by >= 0 && by <= 1) || least < 0 {
		return fmt.Errorf("idle: squeeze by %v to %v: set a part from 0 to 1 and a timeout that is not negative", by, least)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.settings.Load()
	now := old.now
	if now.squeeze = (squeeze{by, least}); now != old.now {
		r.settings.Store(old.next(old.cfg, now, r.clock.Elapsed()))
		r.continueSoon()
	}
	return nil
}
