package load

import (
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// phases are the phases until now, in order. The time after the last one, which has no name, is for
// answers.
type phases []result.Phase

// present returns the name of the present phase.
func (p phases) present() string { return p[len(p)-1].Name }

// at returns the name of the phase at an instant.
func (p phases) at(at int64) string {
	i := len(p) - 1
	for i > 0 && p[i].From > time.Duration(at) {
		i--
	}
	return p[i].Name
}

// delayed records that this process did something later than it was due.
func (l *Loop) delayed(by int64) {
	if now := l.phases.present(); now != "" {
		result.Of(&l.counts.OwnDelay, now).Record(time.Duration(by))
	}
}

// begin begins a phase, and counts the messages of the last one that have no answer.
func (l *Loop) begin(name string) {
	for _, g := range l.counts.Groups {
		if e := g.Exchanges[l.phases.present()]; e != nil {
			e.Outstanding = e.Sent - min(e.Answered, e.Sent) // one may be sent later than it began
		}
	}
	l.phases = append(l.phases, result.Phase{Name: name, From: time.Duration(l.now())})
}
