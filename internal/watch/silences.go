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

// How a silence ended.
const (
	spoke = iota // a byte of the peer; only the longest of a connection counts
	ended        // the peer or an error closed the connection
	dead         // the connection was reaped
	fates
)

// silences are the silences in two windows that overlap. The first one is older. The owner of the
// Shard owns them: 15.1 KiB.
type silences struct {
	period  int64 // in which the second window began
	windows [2]silenceWindow
}

type silenceWindow struct {
	began  mono.Time
	closed uint64 // connections before it
	counts [fates]silence.Histogram
}

// A longest has the bucket of the longest silence of a connection in each window, up to a period. A
// front end that sees no messages keeps that of the silence at the last look.
type longest struct {
	in     [2]uint16
	atLook uint16
	period uint16
}

// turn makes the windows those of an instant.
func (s *silences) turn(now mono.Time, closed uint64) {
	period := int64(now) / int64(silencePeriod)
	if period == s.period {
		return
	}
	next := silenceWindow{began: mono.Time(period * int64(silencePeriod)), closed: closed}
	if s.windows[0] = s.windows[1]; period != s.period+1 {
		s.windows[0] = next
	}
	s.windows[1], s.period = next, period
}

// follow makes the longest silences those of the present windows.
func (l *longest) follow(period uint16) {
	switch period - l.period {
	case 0:
		return
	case 1:
		l.in[0] = l.in[1]
	default:
		l.in[0] = 0
	}
	l.in[1], l.period = 0, period
}

// idleTimeout returns the timeout that silences are compared with, 0 if there is none.
func (set *Settings) idleTimeout() time.Duration { return cmp.Or(set.Common.Read, set.Common.All) }

// leastSilence returns the number of moves of the clock in the shortest silence that is counted. It
// is three eighths of the idle timeout, so that heartbeats of a third of it cost one comparison: to
// count one touches the state of its connection, in 0.1 to 0.5 µs.
func (set *Settings) leastSilence() mono.ShortStamp {
	least := cmp.Or(set.idleTimeout()*3/8, shortest)
	return mono.ShortStamp(max(least/set.Tick, 2))
}

// EndSilence counts a silence that a byte of the peer ends, before the byte is recorded.
func (s *Shard[C]) EndSilence(id uint32, c *Conn[C]) {
	now := s.clock.Elapsed()
	n := silenceCounter[C]{s}
	n.raiseLongest(c, n.longer(id, c, c.LastHeard(s.clock, s.port.Record(c), now).To, now))
}

// EndWithPeer counts the silence of a connection that the peer or an error has closed.
func (s *Shard[C]) EndWithPeer(id uint32, c *Conn[C]) { silenceCounter[C]{s}.countLast(id, c, ended) }

// A silenceCounter counts the silences of its Shard.
type silenceCounter[C any] struct{ *Shard[C] }

// longer returns the bucket of a silence, or 0 if a silence as long is counted already.
func (s silenceCounter[C]) longer(id uint32, c *Conn[C], from, to mono.Time) uint16 {
	s.silences.turn(to, s.Counters.Closed)
	c.longest.follow(uint16(s.silences.period))
	if silence.Bucket(to.Sub(from)) <= c.longest.in[1] {
		return 0
	}
	return silence.Bucket(s.ran(id, c, from, to))
}

// raiseLongest counts a connection by the bucket of a silence, if that is its longest one.
func (s silenceCounter[C]) raiseLongest(c *Conn[C], bucket uint16) {
	if c.Held() || c.Is(connstate.Exempt) {
		return
	}
	for i := range s.silences.windows {
		if old := &c.longest.in[i]; bucket > *old {
			counts := &s.silences.windows[i].counts[spoke]
			if *old > 0 {
				counts[*old]--
			}
			counts[bucket]++
			*old = bucket
		}
	}
}

// noteLook counts the silence at the last look, which a byte has ended, and keeps the present one.
func (s silenceCounter[C]) noteLook(id uint32, c *Conn[C], heard bool, last, now mono.Time) {
	at := s.longer(id, c, last, now)
	if heard {
		s.raiseLongest(c, c.longest.atLook)
	}
	c.longest.atLook = at
}

// countLast counts the last silence of a connection.
func (s silenceCounter[C]) countLast(id uint32, c *Conn[C], how int) {
	now := s.clock.Elapsed()
	s.silences.turn(now, s.Counters.Closed)
	bucket := silence.Bucket(s.ran(id, c, c.LastHeard(s.clock, s.port.Record(c), now).To, now))
	for i := range s.silences.windows {
		s.silences.windows[i].counts[how][bucket]++
	}
}

// ran returns the time between two instants in which the server could hear the peer.
func (s silenceCounter[C]) ran(id uint32, c *Conn[C], from, to mono.Time) time.Duration {
	away := s.Groups.awayOf(id, c, s.Outages.At(to), to)
	if away.Group != nil {
		away = away.Group
	}
	d := to.Sub(from) - away.All.Within(from, to)
	if held := away.HeldSince; held != 0 {
		d -= max(to.Sub(max(held, from)), 0)
	}
	return d
}

// addTo adds the silences of the older window.
func (s silenceCounter[C]) addTo(all *reap.Silences) {
	now := s.clock.Elapsed()
	s.silences.turn(now, s.Counters.Closed)
	w := &s.silences.windows[0]
	all.Window = max(all.Window, now.Sub(w.began))
	all.Connections += s.Counters.Opened - w.closed
	all.Living = w.counts[spoke].Add(all.Living)
	all.Ended = w.counts[ended].Add(all.Ended)
	all.Dead = w.counts[dead].Add(all.Dead)
}
