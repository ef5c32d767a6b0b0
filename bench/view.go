package main

import "slices"

// A view is one table.
type view struct {
	title       string
	work        string
	metric      string
	unit        string
	intro       string
	lessHarness bool // without the cost of the harness
}

// views has all figures in the order of the tables.
var views = []view{
	{
		title: "Cancel and schedule, one producer", work: workReplace, metric: "ns", unit: "ns per pair",
		intro: "With n timers pending, a random one is cancelled and a new one scheduled in its place.",
	},
	{
		title: "Cancel and schedule, two producers", work: workReplace2, metric: "ns", unit: "ns per pair",
		intro: "The same by two goroutines, each with its own half of the timers: wall time by the pairs of both.",
	},
	{
		title: "Schedule and cancel at once, one producer", work: workInstant, metric: "ns", unit: "ns per pair",
		intro: "With n other timers pending, one is scheduled and the same one cancelled.",
	},
	{
		title: "Schedule and cancel at once, two producers", work: workInstant2, metric: "ns", unit: "ns per pair",
		intro: "The same by two goroutines: wall time by the pairs of both.",
	},
	{
		title: "Reschedule, one producer", work: workReschedule, metric: "ns", unit: "ns",
		intro: "A random one of n pending timers is moved to 120 s from now, later than it was.",
	},
	{
		title: "Reschedule, two producers", work: workReschedule2, metric: "ns", unit: "ns",
		intro: "The same by two goroutines, each with its own half of the timers: wall time by the operations of both.",
	},
	{
		title: "Move both ways, one producer", work: workMove, metric: "ns", unit: "ns",
		intro: "A random one of n pending timers is moved to a random instant from 60 s to 120 s from now, earlier or later.",
	},
	{
		title: "Move both ways, two producers", work: workMove2, metric: "ns", unit: "ns",
		intro: "The same by two goroutines, each with its own half of the timers: wall time by the operations of both.",
	},
	{
		title: "Expire, in virtual time", work: workFire, metric: "ns", unit: "ns per timer",
		intro: "n timers with deadlines between 60 s and 120 s, advanced by a tick of 10 ms at a time until all have fired. " +
			"The steps through empty slots, 12,000 in all, are in the figure and weigh most at the smallest n.",
	},
	{
		title: "File again, in virtual time", work: workRefile, metric: "ns", unit: "ns per timer",
		intro: "The same after each timer was moved to 240 s: none fires, and each is filed again.",
	},
	{
		title: "Processor time per expiry", work: workExpiry, metric: "cpu_ns", unit: "ns per timer",
		intro: "n timers with random delays between 1 s and 3 s fire by the real clock. User and system time of the process " +
			"from the last schedule call to the last fire; the callback reads the clock and records the error.",
	},
	{
		title: "Bytes per pending timer", work: workMemory, metric: "bytes", unit: "bytes",
		intro: "Growth of heap and stacks after a garbage collection, with one callback that all timers share, and with " +
			"the handle that the user keeps for each (8 bytes; 4 in Java; none if keys name the timers).",
	},
	{
		title: "Bytes per pending timer after 1.5 s of cancel and schedule", work: workReplace, metric: "bytes_after",
		unit:  "bytes",
		intro: "Memory of cancelled timers, after the warm-up and the second of the first table. A faster subject cancels more timers in it.",
	},
	{
		title: "Processor time with nothing due", work: workHold, metric: "cpu_ms_per_s", unit: "ms per second",
		intro: "A process with n timers that are not due, for 3 s.",
	},
	{
		title: "Heartbeats, everything paid, without the harness", work: workHeartbeat, metric: "cpu_ns",
		unit: "ns per heartbeat", lessHarness: true,
		intro: "n timers of 10 s, each rescheduled twice a second by one goroutine that wakes every 10 ms, for 5 s; first " +
			"deadlines spread over 10 s, so that work deferred until a slot comes up is part of the measurement. User " +
			"and system time of the whole process, garbage collection included, less the median of the harness alone.",
	},
	{
		title: "Heartbeats, everything paid, with the harness", work: workHeartbeat, metric: "cpu_ns",
		unit:  "ns per heartbeat",
		intro: "The same as measured.",
	},
}

// of returns the figure of a subject at a size.
func (v view) of(r *record, subject string, n int) summary {
	s := r.find(v.work, subject, n).summary(v.metric)
	if !v.lessHarness {
		return s
	}
	return s.less(r.find(v.work, noneName, n).summary(v.metric))
}

// subjects returns the candidates with a series for the view in the record.
func (v view) subjects(r *record) []candidate {
	return slices.DeleteFunc(candidates(), func(c candidate) bool {
		return v.lessHarness && c.name == noneName ||
			!slices.ContainsFunc(r.sizes(v.work), func(n int) bool { return r.find(v.work, c.name, n) != nil })
	})
}

// baseNames are the subjects for comparison. The first one with figures is the base.
var baseNames = []string{"timer.Timer", "wheel.Wheel"}

// base returns the name of the base, "" if none was measured.
func (v view) base(r *record) string {
	for _, name := range baseNames {
		if slices.ContainsFunc(r.sizes(v.work), func(n int) bool { return v.of(r, name, n).exists() }) {
			return name
		}
	}
	return ""
}

// isNoise reports whether the figures of a subject and of the base overlap.
func (v view) isNoise(r *record, subject string, n int) bool {
	s, b := v.of(r, subject, n), v.of(r, v.base(r), n)
	return subject != v.base(r) && s.low <= b.high && b.low <= s.high
}

// ratio returns the median of a subject divided by the median of the base. Only positive medians
// have a ratio.
func (v view) ratio(r *record, subject string, n int) (float64, bool) {
	s, b := v.of(r, subject, n), v.of(r, v.base(r), n)
	if s.median > 0 && b.median > 0 { // false for NaN
		return s.median / b.median, true
	}
	return 0, false
}
