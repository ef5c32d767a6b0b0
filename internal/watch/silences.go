package watch

import (
	"cmp"
	"time"

	"github.com/idlewheel/idlewheel/internal/connstate"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/silence"
	"github.com/idlewheel/idlewheel/reap"
)

const (
	// silencePeriod is the time between the beginnings of two windows. Each lasts two periods.
	silencePeriod = 30 * time.Minute
	// shortest is the shortest silence that is counted if there is no idle timeout.
	shortest = time.Second
)

// silences are the silences in two windows that overlap. The first one is older. The owner of the
// Shard owns them: 13.6 KiB.
type silences struct {
	began   mono.Time // of the Shard, or when another idle timeout was followed
	skipped uint16    // periods that other idle timeouts have ended
	period  uint16    // in which the second window began
	windows [2]silenceWindow
}

type silenceWindow struct {
	closed  uint64                  // connections before it
	living  [silence.Buckets]uint32 // connections by the longest silence that a byte has ended
	ended   [silence.Buckets]uint32 // connections that the peer or an error ended, by the last one
	dead    uint64                  // connections that were reaped for their silence
	deadFor float64                 // the sum of these silences in seconds
}

// A longest has the bucket of the longest silence of a connection in each window, up to a period. A
// front end that sees no messages keeps that of the silence at the last look.
type longest struct {
	in     [2]uint16
	atLook uint16
	period uint16
}

// turnSilences begins the windows of now.
func (s *Shard[C]) turnSilences() {
	all := &s.silences
	period := all.skipped + uint16(s.clock.Elapsed()/mono.Time(silencePeriod))
	for range min(period-all.period, 2) {
		all.windows[0], all.windows[1] = all.windows[1], silenceWindow{closed: s.Counters.Closed}
	}
	all.period = period
}

// restart begins both windows again. Shorter or longer silences are counted from now on.
func (all *silences) restart(now mono.Time) { all.began, all.skipped = now, all.skipped+2 }

// idleTimeout returns the timeout that silences are compared with, 0 if there is none.
func (set *Settings) idleTimeout() time.Duration { return cmp.Or(set.Common.Read, set.Common.All) }

// leastSilence returns the number of moves of the clock in the shortest silence that is counted. It
// is three eighths of the idle timeout, so that heartbeats of a third of it cost one comparison: to
// count one touches the state of its connection, in 0.1 to 0.5 µs.
func (set *Settings) leastSilence() mono.ShortStamp {
	least := cmp.Or(set.idleTimeout()/8*3, shortest)
	return mono.ShortStamp(max(least/set.Tick, 2))
}

// isTried reports whether another idle timeout would apply to a connection. SetLimits may have
// given it its own.
func (s *Shard[C]) isTried(c *Conn[C]) bool {
	own, all := s.LimitsOf(c), s.Set.Common
	return s.Set.idleTimeout() == 0 || own.Read == all.Read && own.All == all.All
}

// silentFor returns for how long the peer is silent, without times in which it could not be heard.
func (s *Shard[C]) silentFor(id uint32, c *Conn[C]) time.Duration {
	now := s.clock.Elapsed()
	return s.Groups.ran(id, c, c.LastHeard(s.clock, s.port.Record(c), now).To, now)
}

// EndSilence counts a silence that a byte of the peer ends, before the byte is recorded.
func (s *Shard[C]) EndSilence(id uint32, c *Conn[C]) {
	s.countLiving(c, silence.Bucket(s.silentFor(id, c)))
}

// countLiving counts a connection by the bucket of a silence, if that is its longest one.
func (s *Shard[C]) countLiving(c *Conn[C], bucket uint16) {
	if c.Held() || c.Is(connstate.Exempt) || !s.isTried(c) {
		return
	}
	s.turnSilences()
	for range min(s.silences.period-c.longest.period, 2) {
		c.longest.in[0], c.longest.in[1] = c.longest.in[1], 0
	}
	c.longest.period = s.silences.period
	for i := range s.silences.windows {
		living, old := &s.silences.windows[i].living, &c.longest.in[i]
		if bucket > *old {
			living[bucket]++
			if *old > 0 {
				living[*old]--
			}
			*old = bucket
		}
	}
}

// CountLastSilence counts a connection that is reaped as dead, or ended by the peer or an error.
func (s *Shard[C]) CountLastSilence(id uint32, c *Conn[C], isDead bool) {
	if !s.isTried(c) {
		return
	}
	s.turnSilences()
	lasted := s.silentFor(id, c)
	for i := range s.silences.windows {
		w := &s.silences.windows[i]
		if isDead {
			w.dead++
			w.deadFor += lasted.Seconds()
		} else {
			w.ended[silence.Bucket(lasted)]++
		}
	}
}

// addSilences adds the silences of the older window.
func (s *Shard[C]) addSilences(all *reap.Silences) {
	s.turnSilences()
	now, w := s.clock.Elapsed(), &s.silences.windows[0]
	all.Window = max(all.Window, min(now.Sub(s.silences.began), silencePeriod+time.Duration(now)%silencePeriod))
	all.Connections += s.Counters.Opened - w.closed
	all.Dead += w.dead
	all.DeadFor += w.deadFor
	for i := range silence.Buckets {
		all.Living[i] += w.living[i]
		all.Ended[i] += w.ended[i]
	}
}
