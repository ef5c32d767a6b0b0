package main

import (
	"slices"
	"time"
)

// tick is the granularity given to every subject that takes one.
const tick = 10 * time.Millisecond

// ringSlots is the ring size given to every subject that takes one and has a single ring: at a tick of 10 ms one turn is
// 163 s, longer than any timeout here, so that no timer is looked at once per turn for nothing.
const ringSlots = 1 << 14 // power of two

// Modules that are not other people's.
const (
	ourModule = "github.com/idlewheel/idlewheel"
	stdModule = "std"
)

// A subject is one timer implementation under work. Timers are named by index, as a connection names its timer; the
// subject keeps what its user would keep for that, a handle per timer.
//
// Two goroutines may call at the same time with different indices, unless the subject is driven.
type subject interface {
	schedule(i int, d time.Duration)   // starts timer i, which is not pending
	cancel(i int)                      // ends timer i
	reschedule(i int, d time.Duration) // moves timer i, which is pending, to d from now
	close()                            // ends the subject's goroutines
}

// A driven subject starts no goroutine: the one goroutine that uses it passes the time in.
type driven interface {
	subject
	at(now time.Duration) // sets the time for the calls that follow
	advance()             // fires what is due at that time
	due() time.Duration   // when there is something to do next, for ever if there is nothing
}

// config is what a subject is made with.
type config struct {
	n int // number of indices

	// fire is called with the index of a timer that has expired, on any goroutine. If nil, expiry is of no interest:
	// all timers share one callback where the API permits.
	fire func(i int)
}

// callback returns what timer i calls when it expires: a closure of its own, or one that all share.
func (c config) callback(i int) func() {
	if c.fire == nil {
		return nothing
	}
	fire := c.fire
	return func() { fire(i) }
}

func nothing() {}

// A candidate is a subject that can be asked to do some of the works.
type candidate struct {
	name    string // in the tables
	module  string // whose version the report states
	new     func(config) (subject, error)
	netty   bool              // runs as a Java program
	driven  bool              // one goroutine only
	only    []string          // works it takes part in; nil for all that fit
	note    string            // a footnote wherever it appears
	moves   string            // a footnote where timers are rescheduled
	leftOut map[string]string // work to the reason why it takes no part
}

// candidates lists all subjects in the order of the tables. Ours come first.
func candidates() []candidate {
	list := []candidate{coreCandidate()}
	list = append(list, oursCandidates()...)
	return append(list,
		afterFuncCandidate(),
		heapCandidate(),
		russellLuoCandidate(),
		antlabsCandidate(),
		antlabsResetCandidate(),
		rfyiamcoolCandidate(),
		goZeroCandidate(),
		nettyCandidate(),
		noneCandidate(),
	)
}

func findCandidate(name string) (candidate, bool) {
	for _, c := range candidates() {
		if c.name == name {
			return c, true
		}
	}
	return candidate{}, false
}

// takesPart reports whether the subject is asked to do a work.
func (c candidate) takesPart(w work) bool {
	return c.fits(w) && c.leftOut[w.name] == "" && (c.driven || !w.virtual) && (!c.driven || w.producers == 1)
}

// fits reports whether a reader would expect to see the subject with this work, or a reason why not.
func (c candidate) fits(w work) bool { return c.only == nil || slices.Contains(c.only, w.name) }

// whyNot returns the reason why a subject that fits takes no part in a work, "" if none needs to be given.
func (c candidate) whyNot(w work) string {
	switch {
	case c.takesPart(w) || !c.fits(w):
		return ""
	case c.leftOut[w.name] != "":
		return c.leftOut[w.name]
	case c.driven:
		return "one goroutine owns it"
	default:
		return "time cannot be passed in"
	}
}
