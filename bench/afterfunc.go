package main

import "time"

// afterFunc is [time.AfterFunc], the runtime's own heap of timers.
type afterFunc struct {
	config
	timers []*time.Timer
}

func afterFuncCandidate() candidate {
	return candidate{name: "time.AfterFunc", module: stdModule, new: newAfterFunc}
}

func newAfterFunc(c config) (subject, error) {
	return &afterFunc{config: c, timers: make([]*time.Timer, c.n)}, nil
}

func (s *afterFunc) schedule(i int, d time.Duration)   { s.timers[i] = time.AfterFunc(d, s.callback(i)) }
func (s *afterFunc) cancel(i int)                      { s.timers[i].Stop() }
func (s *afterFunc) reschedule(i int, d time.Duration) { s.timers[i].Reset(d) }

func (s *afterFunc) close() {
	for _, t := range s.timers {
		if t != nil {
			t.Stop()
		}
	}
}
