package load

import (
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A phaseStart is the time at which a phase began.
type phaseStart struct {
	name string
	from int64
}

// enterPhase ends a phase and begins another.
func (l *Loop) enterPhase(name string) {
	l.endPhase()
	l.phase = name
	l.phases = append(l.phases, phaseStart{name, l.now()})
}

// endPhase counts the messages of the current phase that are not answered.
func (l *Loop) endPhase() {
	for _, g := range l.groups {
		if e := g.counts.Exchanges[l.phase]; e != nil {
			e.Outstanding = e.Sent - e.Answered
		}
	}
}

// exchange returns the counts of the messages that were to be sent in the same phase.
func (l *Loop) exchange(g *group, at int64) *result.Exchange {
	i := len(l.phases) - 1
	for i > 0 && at < l.phases[i].from {
		i--
	}
	name := l.phases[i].name
	e := g.counts.Exchanges[name]
	if e == nil {
		if g.counts.Exchanges == nil {
			g.counts.Exchanges = map[string]*result.Exchange{}
		}
		e = &result.Exchange{}
		g.counts.Exchanges[name] = e
	}
	return e
}

// countUnanswered counts the messages of a connection that have waited for an answer for longer than
// the given time.
func (l *Loop) countUnanswered(g *group, c *conn, longer time.Duration) {
	if !g.Behaviour.Echoes() {
		return
	}
	now := l.now()
	for k := c.answered; k < c.sent; k++ {
		if at := g.intendedTime(c, k); now-at > int64(longer) {
			l.exchange(g, at).Unanswered++
		}
	}
}

// recordDelay records how late the loop itself was.
func (l *Loop) recordDelay(d int64) {
	h := l.ownDelay[l.phase]
	if h == nil {
		h = result.NewHistogram()
		l.ownDelay[l.phase] = h
	}
	h.Record(time.Duration(d))
}
