package main

import (
	"time"

	"github.com/idlewheel/idlewheel/wheel"
)

// ours is a [wheel.Timer].
type ours struct {
	timer   *wheel.Timer
	handles []*wheel.Timeout
	tasks   []oursTask // empty where all timers share one task
}

// oursTask has the index of a timer. A pointer to it is a [wheel.Task], so that no closure is
// needed.
type oursTask struct {
	fire func(i int)
	i    int
}

func (t *oursTask) Run(*wheel.Timeout) { t.fire(t.i) }

func oursCandidates() []candidate {
	return []candidate{{name: "wheel.Timer", module: ourModule, new: newOurs}}
}

func newOurs(c config) (subject, error) {
	timer, err := wheel.NewTimer(wheel.TimerConfig{Tick: tick})
	if err != nil {
		return nil, err
	}
	s := &ours{timer: timer, handles: make([]*wheel.Timeout, c.n)}
	if c.fire != nil {
		s.tasks = make([]oursTask, c.n)
		for i := range s.tasks {
			s.tasks[i] = oursTask{fire: c.fire, i: i}
		}
	}
	return s, nil
}

var oursNothing = wheel.TaskFunc(func(*wheel.Timeout) {})

func (s *ours) schedule(i int, d time.Duration) {
	var task wheel.Task = oursNothing
	if s.tasks != nil {
		task = &s.tasks[i]
	}
	h, err := s.timer.NewTimeout(task, d)
	if err != nil {
		panic(err) // only after Stop
	}
	s.handles[i] = h
}

func (s *ours) cancel(i int)                      { s.handles[i].Cancel() }
func (s *ours) reschedule(i int, d time.Duration) { s.handles[i].Reset(d) }
func (s *ours) close()                            { _, _ = s.timer.Stop() }
