package main

import "time"

// none keeps no timers: what the harness costs by itself.
type none struct{}

const noneName = "none (harness)"

func noneCandidate() candidate {
	return candidate{
		name: noneName, new: newNone, only: []string{workHeartbeat},
		note: "No timers: what the loop that does the heartbeats costs by itself.",
	}
}

func newNone(config) (subject, error) { return none{}, nil }

func (none) schedule(int, time.Duration)   {}
func (none) cancel(int)                    {}
func (none) reschedule(int, time.Duration) {}
func (none) close()                        {}
