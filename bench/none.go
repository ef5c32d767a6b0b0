package main

import "time"

// none keeps no timers: it measures the harness.
type none struct{}

const noneName = "none (harness)"

func noneCandidate() candidate {
	return candidate{
		name: noneName, new: newNone, only: []string{workHeartbeat},
		note: "No timers: the cost of the loop that makes the heartbeats.",
	}
}

func newNone(config) (subject, error) { return none{}, nil }

func (none) schedule(int, time.Duration)   {}
func (none) cancel(int)                    {}
func (none) reschedule(int, time.Duration) {}
func (none) close()                        {}
