package main

import (
	"slices"
	"time"
)

// tick is the tick of every subject with a tick.
const tick = 10 * time.Millisecond

// ringSlots is the ring size of every subject with a single ring. At a tick of 10 ms one turn is
// 163 s, longer than any timeout here, so that no timer is visited before its deadline.
const ringSlots = 1 << 14 // power of two

// Modules that are not third-party.
const (
	ourModule = "github.com/idlewheel/idlewheel"
	stdModule = "std"
)

// A subject is one timer implementation. An index names a timer, as a connection does; the subject
// keeps the handle that its user would keep.
//
// Two goroutines may call it at the same time with different indices, unless the subject is driven.
type subject interface {
	schedule(i int, d time.Duration)   // starts timer i, which is not pending
	cancel(i int)                      // ends timer i
	reschedule(i int, d time.Duration) // moves timer i, which is pending, to d from now
	close()                            // ends the subject's goroutines
}

// A driven subject starts no goroutine: the one goroutine that uses it passes the time.
type driven interface {
	subject
	at(now time.Duration) // sets the time for the calls that follow
	advance()             // fires due timers
	due() time.Duration   // the instant of the next work, for ever if there is none
}

// config is the argument of a constructor of a subject.
type config struct {
	n int // number of indices

	// fire is called with the index of a timer that has expired, on any goroutine. If nil, expiry
	// is not measured, and all timers share one callback if the API permits.
	fire func(i int)
}

// callback returns the function that timer i calls when it expires: its own closure, or a shared
// one.
func (c config) callback(i int) func() {
	if c.fire == nil {
		return nothing
	}
	fire := c.fire
	return func() { fire(i) }
}

func nothing() {}

// A candidate is a subject with the works in which it takes part.
type candidate struct {
	name    string // in the tables
	module  string // the report states its version
	new     func(config) (subject, error)
	netty   bool              // runs as a Java program
	driven  bool              // one goroutine only
	only    []string          // works in which it takes part; nil for all that fit
	note    string            // a footnote in each table
	moves   string            // a footnote in tables about rescheduling
	leftOut map[string]string // reasons why it takes no part, by work
}

// candidates returns all subjects in the order of the tables. Our timers come first.
func candidates() []candidate {
	return []candidate{
		coreCandidate(),
		oursCandidate(),
		afterFuncCandidate(),
		heapCandidate(),
		russellLuoCandidate(),
		antlabsCandidate(),
		antlabsResetCandidate(),
		rfyiamcoolCandidate(),
		goZeroCandidate(),
		nettyCandidate(),
		noneCandidate(),
	}
}

func findCandidate(name string) (candidate, bool) {
	for _, c := range candidates() {
		if c.name == name {
			return c, true
		}
	}
	return candidate{}, false
}

// takesPart reports whether the subject takes part in a work.
func (c candidate) takesPart(w work) bool {
	return c.fits(w) && c.leftOut[w.name] == "" && (c.driven || !w.virtual) && (!c.driven || w.producers == 1)
}

// fits reports whether a reader expects the subject in the tables of a work, or the reason why it
// is missing.
func (c candidate) fits(w work) bool { return c.only == nil || slices.Contains(c.only, w.name) }

// whyNot returns the reason why a subject that fits takes no part in a work, "" if none needs to be
// given.
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
