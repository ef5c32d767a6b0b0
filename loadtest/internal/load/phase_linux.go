package load

import (
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A phase is a part of the run. The time after the last one, which has no name, is for answers.
type phase struct {
	name string
	from int64
}

// begin begins a phase, and counts the messages of the last one that wait for an answer.
func (l *Loop) begin(name string) {
	for i := range l.conns {
		c := &l.conns[i]
		if g := l.groups[c.group]; c.state == open && g.Behaviour.Echoes() {
			for k := c.answered; k < c.whole(g.size); k++ {
				if of := l.phaseAt(g.begins(c, k, c.lastSend)); of == l.phase() && of != "" {
					g.exchange(of).Outstanding++
				}
			}
		}
	}
	l.phases = append(l.phases, phase{name, l.now()})
}

// phase returns the name of the present phase.
func (l *Loop) phase() string { return l.phases[len(l.phases)-1].name }

// phaseAt returns the name of the phase at an instant.
func (l *Loop) phaseAt(at int64) string {
	i := len(l.phases) - 1
	for i > 0 && l.phases[i].from > at {
		i--
	}
	return l.phases[i].name
}

func (g *group) latency(phase string) *result.Latency {
	of := g.counts.Latency[phase]
	if of == nil {
		if g.counts.Latency == nil {
			g.counts.Latency = map[string]*result.Latency{}
		}
		of = &result.Latency{Corrected: result.NewHistogram(), Raw: result.NewHistogram()}
		g.counts.Latency[phase] = of
	}
	return of
}

func (g *group) exchange(phase string) *result.Exchange {
	of := g.counts.Exchanges[phase]
	if of == nil {
		if g.counts.Exchanges == nil {
			g.counts.Exchanges = map[string]*result.Exchange{}
		}
		of = &result.Exchange{}
		g.counts.Exchanges[phase] = of
	}
	return of
}

// delayed records that this process did something later than it was due.
func (l *Loop) delayed(by int64) {
	name := l.phase()
	of := l.delays[name]
	if of == nil {
		of = result.NewHistogram()
		l.delays[name] = of
	}
	of.Record(time.Duration(by))
}
