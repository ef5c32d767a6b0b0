package idlenet

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

const (
	// probesPerTick is the number of connections that are asked in each tick when they were heard
	// last, so that a silence of all of them is noticed. Looks that have found news count. While
	// verdicts are held it is probesInHold.
	probesPerTick = 8
	probesInHold  = 64
	// countedAtMost bounds the number of connections that are asked, to find out whether a silence
	// of all is unusual.
	countedAtMost = 1 << 11
	// stillPart is the part of a silence in which a byte may still have come that was not known when
	// the silence was noticed.
	stillPart = 4
	// callsAtOnce is the number of calls, most of which end a connection, after which the judge rests.
	// The runtime asks the kernel for input only when no goroutine is ready to run. Without the rest
	// living connections wait until the servers have closed all that end together.
	callsAtOnce = 64
	rest        = time.Millisecond
	// searchedPerTick is the number of connections in each tick of which a closed Listener finds
	// out whether they are closed.
	searchedPerTick = 1 << 11
	// searchedPerLock is the number of connections that are checked under one lock: 25 µs.
	searchedPerLock = 1 << 8
	// adaptedPerLock is the number of connections that a change of the Config makes due under one
	// lock.
	adaptedPerLock = 1 << 8
)

// A judge is the goroutine that moves the clock and looks at the connections that are due. A
// Listener has one while it has connections, or reasons of closed ones. The goroutine owns all
// fields.
type judge struct {
	listener *Listener
	monitor  outage.Monitor
	heard    mono.Time     // a peer was heard then; later ones may not be known yet
	told     mono.Time     // the last one that the monitor knows of
	still    mono.Time     // a byte until then does not end the silence that was counted last
	turn     int           // of the shards, for probes
	news     int           // looks since the last probes that have found a later byte of a peer
	follows  *settings     // all connections are judged by these, or are due
	state    *outage.State // the findings in known
	known    *verdict.Away // the outages until the last move
	late     mono.Longest  // delays of moves of the clock
}

func (j *judge) init(l *Listener, now mono.Time) {
	j.listener, j.follows = l, l.settings.Load()
	j.monitor.Init(now)
}

// resume begins again after a time without connections.
func (j *judge) resume(now mono.Time) { j.monitor.Resume(now) }

func (j *judge) run() {
	l := j.listener
	timer := time.NewTimer(l.untilTick())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.wake:
		}
		j.round()
		if j.leave() {
			return
		}
		timer.Reset(l.untilTick())
	}
}

// leave ends the goroutine if no connection is open, and no reason is kept. A closed Listener keeps
// its reasons as long as the server keeps the Listener.
func (j *judge) leave() bool {
	l := j.listener
	kept := !l.closing.Load() && l.keepsReasons()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.judging = kept || l.total.Load() > 0
	return !l.judging
}

// keepsReasons reports whether the reason of a connection is known.
func (l *Listener) keepsReasons() bool {
	for _, s := range l.shards {
		s.mu.Lock()
		n := len(s.ends)
		s.mu.Unlock()
		if n > 0 {
			return true
		}
	}
	return false
}

// round moves the clock and looks at all connections that are due.
func (j *judge) round() {
	l := j.listener
	j.move()
	if set := l.settings.Load(); set != j.follows {
		j.adapt(set)
	}
	made := 0
	for _, s := range l.shards {
		for calls, more := s.advance(); more; calls, more = s.advance() {
			if made += calls; made >= callsAtOnce {
				made = 0
				time.Sleep(rest)
			}
			j.move() // so that a long round is no outage
		}
		if l.closing.Load() {
			s.searchSome(searchedPerTick)
		}
	}
	j.probe()
}

// move moves the clock, if a tick has passed, and takes note of outages.
func (j *judge) move() {
	l := j.listener
	from, to := l.clock.Move()
	if from == to {
		return
	}
	if l.total.Load() == 0 { // the silence says nothing
		j.monitor.Resume(to)
	}
	set := l.settings.Load()
	if stamp := l.stamped.Load(); stamp != 0 {
		j.heard = max(j.heard, l.clock.Before(mono.Stamp(stamp), to))
	}
	if state := j.monitor.State(); j.heard > j.still || !state.Held() {
		j.told = j.heard
	}
	found := j.monitor.Step(from, to, j.told, set.rule)
	if found.Count {
		j.countBusy(j.monitor.State().Count, to)
	}
	j.report(found)
	l.mu.Lock()
	l.monitor = monitorStats{
		outages: j.monitor.Outages, time: j.monitor.Time, holds: j.monitor.Holds, holding: j.monitor.State().Held(),
		lag: j.lag(from, to),
	}
	l.mu.Unlock()
}

// lagWindow is the length of a window. A lag is remembered for one to two windows.
const lagWindow = 10 * time.Second

// lag returns the greatest delay of the last windows.
func (j *judge) lag(from, to mono.Time) time.Duration {
	tick := j.listener.clock.Tick()
	j.late.Add(max(to.Sub(to.Truncate(tick)), to.Sub(from)-tick), to, lagWindow)
	return j.late.Worst(to, lagWindow)
}

// away returns the outages until now. The process may have been stopped since the last move.
func (j *judge) away(rule *outage.Rule, now mono.Time) *verdict.Away {
	state := j.monitor.State()
	if held := state.HeldSince(); state != j.state || held != j.known.HeldSince {
		j.state = state
		j.known = &verdict.Away{Server: state.Server, Silent: state.Silent, HeldSince: held, Loop: state.Server}
	}
	to := j.listener.clock.Read()
	if !rule.IsGap(to, now) {
		return j.known
	}
	away := *j.known
	away.Server = away.Server.Add(verdict.Outage{From: to, To: now, Length: now.Sub(to)}, 0)
	away.Loop = away.Server
	return &away
}

// noteHeard takes note of the last byte of a peer. The same byte may seem later by two steps of the
// kernel's clock.
func (s *shard) noteHeard(ev *verdict.Evidence, now mono.Time) {
	j, at := &s.listener.judge, now
	switch {
	case ev.Dated && ev.Received > 0:
		at = now.Add(-ev.Took - ev.Silent)
	case ev.Found != verdict.Unread:
		return
	}
	if at > j.heard.Add(2*ev.Step) {
		j.heard = at
	}
}

// probe asks the kernel about some connections, one after the other over time, when they were heard
// last.
func (j *judge) probe() {
	l := j.listener
	rule := &j.follows.rule
	if !rule.Hold || rule.Shortest == 0 {
		return
	}
	n := probesPerTick - j.news
	j.news = 0
	if j.monitor.State().Held() {
		n = probesInHold
	}
	for range n {
		j.turn++
		s := l.shards[j.turn%len(l.shards)]
		s.probe(nil, s.size())
	}
}

// countBusy counts the connections that were heard in the period of a Count and not since, each
// once. It counts none if one of them was heard well after the period: then there is no silence.
// Until now the judge knew only when some of them were heard.
func (j *judge) countBusy(c *outage.Count, now mono.Time) {
	j.still = c.To.Add(now.Sub(c.To) / stillPart)
	busy, asked := 0, 0
	for _, s := range j.listener.shards {
		for left := s.size(); left > 0 && asked < countedAtMost; asked++ {
			passed, wasBusy := s.probe(c, left)
			left -= passed
			if wasBusy {
				busy++
			}
		}
	}
	if j.heard <= j.still {
		c.Add(busy)
	}
}

// size returns how many ids of connections the shard has, free ones included.
func (s *shard) size() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns.Len()
}

// probe asks the kernel when the next connection was heard last. It returns the number of ids that
// it has passed, at most most, and whether the connection was busy in the period of a Count.
func (s *shard) probe(c *outage.Count, most uint32) (passed uint32, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ev := s.listener, &s.evidence
	for passed < most {
		passed++
		s.probed = (s.probed + 1) % s.conns.Len()
		n := s.conns.At(s.probed)
		if !n.used() || s.ends[s.probed] != nil {
			continue
		}
		before := l.clock.Elapsed()
		if !l.ask(n.conn, configtable.TenYears, ev) {
			continue
		}
		now := l.clock.Elapsed()
		ev.Took = now.Sub(before)
		s.noteHeard(ev, now)
		heard := now.Add(-ev.Silent)
		return passed, c != nil && ev.Dated && ev.Received > 0 && heard >= c.From && heard <= c.To.Add(2*ev.Step) &&
			l.clock.Unpack(n.Opened(), now) <= c.From
	}
	return passed, false
}

// adapt brings all connections in line with other settings: they are judged at the next tick.
func (j *judge) adapt(set *settings) {
	for _, s := range j.listener.shards {
		for from := uint32(0); ; from += adaptedPerLock {
			if !s.adapt(from, j.follows, set) {
				break
			}
			j.move()
		}
	}
	j.follows = set
}

// adapt adapts connections from an id on. It reports whether there are more.
func (s *shard) adapt(from uint32, before, set *settings) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := min(from+adaptedPerLock, s.conns.Len())
	for id := from; id < end; id++ {
		n := s.conns.At(id)
		if !n.used() {
			continue
		}
		if !set.cfg.ObserveOnly {
			n.SetObserved(false)
		}
		n.Adapt(&s.listener.clock, &before.limits, &set.limits)
		if own, ok := root(n.conn); ok && before.cfg.TCPKeepAlive != set.cfg.TCPKeepAlive {
			s.listener.keepAlive(own, set.cfg.TCPKeepAlive)
		}
		if s.ends[id] == nil {
			s.soon(n)
		}
	}
	return end < s.conns.Len()
}

// searchSome finds out which of the next connections are closed.
func (s *shard) searchSome(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range min(n, int(s.conns.Len())) {
		s.searchClosed()
	}
}

// report logs a finding about outages.
func (j *judge) report(f outage.Finding) {
	l := j.listener
	switch {
	case f.Held > 0:
		l.warn(&l.warnings.hold, "nothing is heard from connections that were busy until now: "+
			"verdicts about peers are held", "silent", f.Held)
	case f.Outage.Length > 0 && f.Silent:
		l.warn(&l.warnings.outage, "the silence of all connections is over: "+
			"verdicts about peers are put off by its length", "outage", f.Outage.Length)
	case f.Outage.Length > 0:
		l.warn(&l.warnings.outage, "the server stood still: "+
			"verdicts about peers are put off by the length of the outage", "outage", f.Outage.Length)
	}
}
