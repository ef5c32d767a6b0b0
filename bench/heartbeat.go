package main

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	heartbeatTimeout = 10 * time.Second
	heartbeatParts   = 50 // one part is due every 10 ms: two heartbeats a second for each timer
)

// runHeartbeat measures the processor time of the whole process per heartbeat, including deferred
// work: scanning slots, filing again, collecting garbage.
//
// The first deadlines are spread over a whole timeout, as in a server that has run for some time,
// so that work deferred until a slot comes up is part of the measurement.
func runHeartbeat(j job, c candidate) (metrics, error) {
	delays := delayTable(j, heartbeatTimeout/10, heartbeatTimeout)
	order := j.random(2).Perm(j.N)
	var fired atomic.Int64
	s, err := c.new(config{n: j.N, fire: func(int) { fired.Add(1) }})
	if err != nil {
		return nil, err
	}
	defer s.close()
	now := clock()
	runtime.GC()
	d, isDriven := s.(driven)
	fill(s, j.N, now, delays)

	watch := time.AfterFunc(j.Heartbeat+j.Patience, func() {
		exitStuck(fmt.Sprintf("heartbeats have not returned %v after their end was due", j.Patience))
	})
	part := j.N / heartbeatParts
	steps := int(j.Heartbeat / tick)
	began, used := now(), processCPU()
	for step := range steps {
		time.Sleep(began + time.Duration(step)*tick - now())
		if isDriven {
			d.at(now())
			d.advance()
		}
		from := step % heartbeatParts * part
		for _, i := range order[from : from+part] {
			s.reschedule(i, heartbeatTimeout)
		}
	}
	used = processCPU() - used
	took := now() - began
	watch.Stop()
	beats := float64(steps * part)
	return metrics{
		"cpu_ns":      float64(used) / beats,
		"fired":       float64(fired.Load()),
		"beats_per_s": beats / took.Seconds(),
	}, nil
}
