package idlenet

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/internal/watch"
)

const (
	// probesPerTick is the number of connections that are asked in each tick when they were heard
	// last, so that a silence of all of them is noticed. Looks that have found news count. While
	// verdicts are suspended it is probesInHold.
	probesPerTick = 8
	probesInHold  = 64
	// countedAtMost bounds the number of connections that are asked, to find out whether a silence
	// of all is unusual.
	countedAtMost = 1 << 11
	// stillPart is the part of a silence in which a byte may still have come that was not known
	// when the silence was noticed.
	stillPart = 4
	// callsAtOnce is the number of calls between two lulls of the driver. Most of them end a
	// connection.
	callsAtOnce = 32
	// searchedPerTick is the largest number of ids of a shard that the driver checks in a tick for
	// closed connections. It stops when searchedAtOnce in a row are open, but not before it has
	// checked the part of a tick of all ids in searchTime.
	searchedPerTick = 1 << 11
	searchedAtOnce  = 1 << 3
	searchTime      = 10 * time.Second
	// passedAtMost is the number of ids that a probe passes to find an open connection.
	passedAtMost = 1 << 8
	// perLock is the number of connections that are checked, or adapted to another Config, under one
	// lock: 25 µs.
	perLock = 1 << 8
	// looksPerLock is the number of connections that are looked at under one lock.
	looksPerLock = 16
)

// A driver is the goroutine that moves the clock and looks at the connections that are due. A
// Reaper has one while it has connections, or reasons of closed ones. The goroutine owns all
// fields.
type driver struct {
	reaper   *Reaper
	heard    mono.Time // a peer was heard then; later ones may not be known yet
	told     mono.Time // the last one that the monitor knows of
	still    mono.Time // a byte until then does not end the silence that was counted last
	turn     int       // of the shards, for probes
	ticked   bool      // the clock has moved since the last probes
	news     int       // looks since the last probes that have found a later byte of a peer
	evidence verdict.Evidence
	lull     lull
	rest     func() // lull.wait
}

func (d *driver) drive() {
	d.reaper.watch.Drive(nil, 0, func() bool { d.round(); return !d.leave() })
}

// leave ends the goroutine if no connection is open, and no reason is kept. If all listeners are
// closed, the reasons stay as long as the server keeps the Reaper.
func (d *driver) leave() bool {
	r := d.reaper
	kept := false
	for _, s := range r.shards {
		s.locked(func() { kept = s.reasons.expire(r.watch.Clock.Elapsed()) || kept })
	}
	kept = kept && r.listening.Load() > 0
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.driving = kept || r.watch.Open.Load() > 0; !r.driving {
		d.lull.close() // before the next goroutine may begin
	}
	return !r.driving
}

// round moves the clock and looks at all connections that are due.
func (d *driver) round() {
	r := d.reaper
	d.move()
	d.adapt(r.watch.Settings())
	made := 0
	for _, s := range r.shards {
		for calls, more := s.advance(); more; calls, more = s.advance() {
			if made += calls; made >= callsAtOnce {
				made = 0
				d.rest()
			}
			d.move() // so that a long round does not count as an outage
		}
	}
	if d.ticked { // a round may follow each connection that is shed or kicked
		for _, s := range r.shards {
			s.purge()
		}
		d.probe()
		d.ticked = false
	}
}

// advance does a part of a step of groups, looks at connections that are due, and makes the calls
// that follow. It returns their number, and reports whether there may be more to do.
func (s *shard) advance() (made int, more bool) {
	s.mu.Lock()
	steps := s.Groups.Step()
	more = s.Schedule.Advance(looksPerLock) || steps
	calls := s.calls
	s.calls = nil
	s.mu.Unlock()
	for _, call := range calls {
		call()
	}
	return len(calls), more || len(calls) > 0 // a call may have left more of them
}

// adapt brings all connections in line with other settings.
func (d *driver) adapt(set *watch.Settings) {
	for _, s := range d.reaper.shards {
		for more := true; more; {
			s.locked(func() {
				s.Follow(set)
				s.AdaptSome(perLock)
				more = !s.IsAdapted()
			})
			if more {
				d.move()
			}
		}
	}
}

// move moves the clock, if a tick has passed, and takes note of outages.
func (d *driver) move() {
	w := &d.reaper.watch
	found, moved := w.Move(d.lastHeard)
	if !moved {
		return
	}
	d.ticked = true
	if found.Count {
		d.countBusy(w.Monitor.State().Count, w.Clock.Read())
	}
	w.Report(found)
}

// lastHeard returns the last instant at which a peer was heard, for the monitor.
func (d *driver) lastHeard(now mono.Time) mono.Time {
	r := d.reaper
	if stamp := r.stamped.Load(); stamp != 0 {
		d.heard = max(d.heard, r.watch.Clock.Before(mono.Stamp(stamp), now))
	}
	if d.heard > d.still || !r.watch.Monitor.State().Held() {
		d.told = d.heard
	}
	return d.told
}

// noteHeard takes note of the last byte of a peer. The same byte may seem later by two steps of the
// kernel's clock.
func (d *driver) noteHeard(ev *verdict.Evidence, now mono.Time) {
	at := ev.LastByte(now)
	if at == 0 && ev.Found == verdict.Unread {
		at = now
	}
	if at > d.heard.Add(2*ev.Step) {
		d.heard = at
	}
}

// probe asks the kernel about some connections, one after the other over time, when they were heard
// last.
func (d *driver) probe() {
	r := d.reaper
	rule := r.watch.Rule()
	if !rule.Hold || rule.Shortest == 0 {
		return
	}
	n := probesPerTick - d.news
	d.news = 0
	if r.watch.Monitor.State().Held() {
		n = probesInHold
	}
	for range n {
		d.turn++
		s := r.shards[d.turn%len(r.shards)]
		d.probeNext(s, nil, min(s.size(), passedAtMost))
	}
}

// countBusy counts the connections that were heard in the period of a Count and not since, each
// once. It counts none if one of them was heard well after the period: then there is no silence.
// Until now the driver knew only when some of them were heard.
func (d *driver) countBusy(c *outage.Count, now mono.Time) {
	d.still = c.To.Add(now.Sub(c.To) / stillPart)
	busy, asked := 0, 0
	for _, s := range d.reaper.shards {
		for left := s.size(); left > 0 && asked < countedAtMost; asked++ {
			passed, wasBusy := d.probeNext(s, c, left)
			left -= passed
			if wasBusy {
				busy++
			}
		}
	}
	if d.heard <= d.still {
		c.Add(busy)
	}
}

// probeNext asks the kernel when the next connection of a shard was heard last. It returns the
// number of ids that it has passed, at most most, and whether the connection was busy in the period
// of a Count.
func (d *driver) probeNext(s *shard, c *outage.Count, most uint32) (passed uint32, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ev, clock := &d.evidence, &s.Watcher.Clock
	for passed < most {
		passed++
		s.probed = (s.probed + 1) % s.Len()
		n := s.At(s.probed)
		if !n.Used() || s.Ends.Of(s.probed) != nil {
			continue
		}
		now, open := d.askWhenHeard(n)
		if !open {
			s.Drop(s.probed, n)
			continue
		}
		heard := ev.LastByte(now)
		return passed, c != nil && heard >= c.From && heard <= c.To.Add(2*ev.Step) && clock.Unpack(n.Opened(), now) <= c.From
	}
	return passed, false
}

// askWhenHeard asks the kernel when a connection was heard last, and not whether bytes wait. It
// returns the time before the answer.
func (d *driver) askWhenHeard(n *conn) (now mono.Time, open bool) {
	now = d.reaper.watch.Clock.Elapsed()
	if open = d.reaper.ask(n.Front.own(), configtable.TenYears, &d.evidence); open {
		d.noteHeard(&d.evidence, now)
	}
	return now, open
}
