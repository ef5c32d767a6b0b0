package main

import (
	"time"

	"github.com/RussellLuo/timingwheel"
	"github.com/antlabs/timer"
	timewheel "github.com/rfyiamcool/go-timewheel"
	"github.com/zeromicro/go-zero/core/collection"
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

// goZero is go-zero's collection.TimingWheel: keys name the timers, and one goroutine behind
// channels owns them.
type goZero struct {
	wheel *collection.TimingWheel
}

func goZeroCandidate() candidate {
	return candidate{
		name: "go-zero TimingWheel", module: "github.com/zeromicro/go-zero", new: newGoZero,
		note: "Keys name the timers, here the index. A removed timer stays in memory until its slot comes up.",
	}
}

func newGoZero(c config) (subject, error) {
	w, err := collection.NewTimingWheel(tick, ringSlots, func(key, _ any) {
		if c.fire != nil {
			c.fire(key.(int))
		}
	})
	if err != nil {
		return nil, err
	}
	return &goZero{wheel: w}, nil
}

// The errors are for a delay that is not positive and for a closed wheel. Neither occurs here.

func (s *goZero) schedule(i int, d time.Duration)   { _ = s.wheel.SetTimer(i, nil, d) }
func (s *goZero) reschedule(i int, d time.Duration) { _ = s.wheel.MoveTimer(i, d) }
func (s *goZero) cancel(i int)                      { _ = s.wheel.RemoveTimer(i) }
func (s *goZero) close()                            { s.wheel.Stop() }

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

// russellLuoSlots is the size of each level: 5.12 s, then 44 minutes.
const russellLuoSlots = 512

// russellLuo is RussellLuo/timingwheel, hierarchical wheels after Kafka's.
type russellLuo struct {
	config
	wheel  *timingwheel.TimingWheel
	timers []*timingwheel.Timer
}

func russellLuoCandidate() candidate {
	return candidate{
		name: "RussellLuo/timingwheel", module: "github.com/RussellLuo/timingwheel", new: newRussellLuo,
		note:  "Levels of 512 slots. Reads the wall clock in milliseconds and rounds down to a tick.",
		moves: "No reschedule: Stop and AfterFunc.",
	}
}

func newRussellLuo(c config) (subject, error) {
	s := &russellLuo{
		config: c,
		wheel:  timingwheel.NewTimingWheel(tick, russellLuoSlots),
		timers: make([]*timingwheel.Timer, c.n),
	}
	s.wheel.Start()
	return s, nil
}

func (s *russellLuo) schedule(i int, d time.Duration) {
	s.timers[i] = s.wheel.AfterFunc(d, s.callback(i))
}
func (s *russellLuo) cancel(i int) { s.timers[i].Stop() }
func (s *russellLuo) close()       { s.wheel.Stop() }

func (s *russellLuo) reschedule(i int, d time.Duration) {
	s.cancel(i)
	s.schedule(i, d)
}
