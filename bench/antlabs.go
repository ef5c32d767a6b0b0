package main

import (
	"time"

	"github.com/antlabs/timer"
)

// antlabs is antlabs/timer, five levels of slots with a lock each, after skynet's and the Linux
// kernel's.
type antlabs struct {
	config
	timer timer.Timer
	nodes []timer.TimeNoder
	reset bool // reschedule with Reset instead of Stop and AfterFunc
}

const antlabsModule = "github.com/antlabs/timer"

func antlabsCandidate() candidate {
	return candidate{
		name: "antlabs/timer", module: antlabsModule, new: newAntlabs,
		note:  "Its tick is 10 ms, fixed; it counts from the last tick and rounds down.",
		moves: "Stop and AfterFunc: its Reset, which the source calls unstable, has a row of its own.",
	}
}

// antlabsResetCandidate reschedules as the API suggests. Reset locks the old slot of the timer and
// then the new one, without an order between them and without a check whether they are the same.
func antlabsResetCandidate() candidate {
	return candidate{
		name: "antlabs/timer Reset", module: antlabsModule, new: newAntlabsReset,
		only: []string{workReschedule, workReschedule2, workHeartbeat},
		note: "Reset deadlocks as soon as a timer moves within its slot, or two producers cross.",
	}
}

func newAntlabs(c config) (subject, error) {
	s := &antlabs{config: c, timer: timer.NewTimer(), nodes: make([]timer.TimeNoder, c.n)}
	go s.timer.Run()
	return s, nil
}

func newAntlabsReset(c config) (subject, error) {
	s, err := newAntlabs(c)
	if err != nil {
		return nil, err
	}
	s.(*antlabs).reset = true
	return s, nil
}

func (s *antlabs) schedule(i int, d time.Duration) { s.nodes[i] = s.timer.AfterFunc(d, s.callback(i)) }
func (s *antlabs) cancel(i int)                    { s.nodes[i].Stop() }
func (s *antlabs) close()                          { s.timer.Stop() }

func (s *antlabs) reschedule(i int, d time.Duration) {
	if s.reset {
		s.nodes[i].Reset(d)
		return
	}
	s.cancel(i)
	s.schedule(i, d)
}
