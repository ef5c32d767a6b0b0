package watch

import "github.com/idlewheel/idlewheel/internal/connstate"

// Follow switches to newer settings. It reports false if they are followed already, or later ones.
// Each connection is judged by them after AdaptSome.
func (s *Shard[C]) Follow(set *Settings) (changed bool) {
	if s.Set != nil && set.Version <= s.Set.Version {
		return false
	}
	if s.IsAdapted() {
		s.previous = s.Set
	} else { // only some connections are adapted to the last ones
		s.previous = s.previous.joined(s.Set, set)
	}
	if s.Set != nil && s.Set.idleTimeout() != set.idleTimeout() {
		s.silences.restart(s.clock.Elapsed())
	}
	s.Set, s.LeastSilence = set, set.leastSilence()
	s.Groups.due, s.Groups.pass = 0, 0
	if s.adapted, s.toAdapt = 0, s.Len(); s.Open == 0 {
		s.toAdapt = 0
	}
	return true
}

// catchUp follows the settings in force, if the front end sees no messages: its rounds may take
// long, and a call of Update must hold from its return on.
func (s *Shard[C]) catchUp() {
	if s.asks {
		s.Follow(s.Watcher.Settings())
	}
}

// IsAdapted reports whether all connections are judged by Set.
func (s *Shard[C]) IsAdapted() bool { return s.adapted >= s.toAdapt }

// AdaptSome adapts the next n connections to the present settings, and moves looks forward that are
// sooner now.
func (s *Shard[C]) AdaptSome(n int) {
	for ; n > 0 && s.adapted < s.toAdapt; n-- {
		id := s.adapted
		s.adapted++
		if c := s.conns.at(id); c.Used() {
			s.adapt(id, c)
			s.Rearm(id, c)
		}
	}
}

// adaptNow adapts a connection before its turn, so that no verdict about it uses old values.
func (s *Shard[C]) adaptNow(id uint32, c *Conn[C]) {
	if s.adapted <= id && id < s.toAdapt {
		s.adapt(id, c)
	}
}

// adapt brings a connection in line with new settings. A limit that is switched on again must not
// use old values.
func (s *Shard[C]) adapt(id uint32, c *Conn[C]) {
	if !s.Set.ObserveOnly && c.Is(connstate.Observed) && s.Ends.Of(id) == nil {
		c.Spare(connstate.Observed, false)
		s.Watcher.Decided.Add(-1)
		delete(s.Large, id)
	}
	lim := s.LimitsOf(c)
	before := &s.previous.Config.Limits
	if c.LimitsID != 0 {
		own := *before
		override(&own, &lim.Own)
		before = &own
	}
	c.Adapt(s.clock, before, &lim.Limits)
	if lim.Output.Hard == 0 {
		delete(s.Large, id)
	}
	if d := s.Set.TCPKeepAlive; d != s.previous.TCPKeepAlive {
		s.port.SetKeepAlive(c, d)
	}
}
