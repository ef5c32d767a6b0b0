package main

import (
	"time"

	timewheel "github.com/rfyiamcool/go-timewheel"
)

// rfyiamcool is rfyiamcool/go-timewheel, a ring of maps behind one lock.
type rfyiamcool struct {
	config
	wheel *timewheel.TimeWheel
	tasks []*timewheel.Task
}

func rfyiamcoolCandidate() candidate {
	return candidate{
		name: "rfyiamcool/go-timewheel", module: "github.com/rfyiamcool/go-timewheel", new: newRfyiamcool,
		note:  "Used through Add and Remove, the lightest of its two interfaces.",
		moves: "Remove and Add: Reset belongs to its heavier Timer, writes without a lock, and leaves the old task behind.",
	}
}

func newRfyiamcool(c config) (subject, error) {
	w, err := timewheel.NewTimeWheel(tick, ringSlots)
	if err != nil {
		return nil, err
	}
	w.Start()
	return &rfyiamcool{config: c, wheel: w, tasks: make([]*timewheel.Task, c.n)}, nil
}

func (s *rfyiamcool) schedule(i int, d time.Duration) { s.tasks[i] = s.wheel.Add(d, s.callback(i)) }

// Remove never fails for a known task.
func (s *rfyiamcool) cancel(i int) { _ = s.wheel.Remove(s.tasks[i]) }
func (s *rfyiamcool) close()       { s.wheel.Stop() }

func (s *rfyiamcool) reschedule(i int, d time.Duration) {
	s.cancel(i)
	s.schedule(i, d)
}

// stopDefaultWheel stops the wheel that the package starts when it is imported, which ticks once a
// second.
func stopDefaultWheel() { timewheel.DefaultTimeWheel.Stop() }
