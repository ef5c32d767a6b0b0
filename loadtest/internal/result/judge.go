package result

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
)

// An Outcome is what a result says about the target.
type Outcome string

// Outcomes. A result is not valid if this program or this machine could not do what was asked.
const (
	Passed   Outcome = "passed"
	Failed   Outcome = "failed"
	NotValid Outcome = "not valid"
)

// A Verdict is the outcome with its causes. Remarks are observations that do not decide.
type Verdict struct {
	Outcome Outcome  `json:"outcome"`
	Causes  []string `json:"causes,omitempty"`
	Remarks []string `json:"remarks,omitempty"`
}

const (
	// earlyTolerance is how early a reap may be by default.
	earlyTolerance = time.Millisecond
	// leastOwnDelay is an own delay that is always accepted by default.
	leastOwnDelay = 100 * time.Millisecond
	// leastShare is an own delay at the p99 that is always accepted in a latency.
	leastShare = 20 * time.Millisecond
	// leastLateness is a lateness at the p99 that is always accepted by default.
	leastLateness = 250 * time.Millisecond
	// settled is how long after the end of its phase a message counts as never answered.
	settled = 5 * time.Second
	// leastChurn is the part of the requested rate that a churn must reach.
	leastChurn = 0.9
)

// MostLate returns how late a dead connection may be closed by default.
func MostLate(timeout time.Duration) time.Duration { return max(timeout/10, leastLateness) }

// findings are the causes of each outcome.
type findings struct {
	facts       []string // faults of the target that no delay of this program explains
	explainable []string // faults of the target that a late program may cause itself
	late        []string // this program was late
	unable      []string // this program or this machine could not do what was asked
	remarks     []string
}

// Judge evaluates the expectations of a result, and sets its verdict. It is the only place that
// decides about the outcome.
//
// Facts that no delay of this program explains fail in any case. Otherwise the result is not valid
// if this program was late or could not do what was asked. An expectation with the name of a
// default rule replaces the rule.
func (r *Result) Judge() {
	for _, g := range r.Groups {
		for _, l := range g.Latency {
			l.All = l.Quantiles()
		}
	}
	var f findings
	f.facts = append(f.facts, r.Errors...)
	f.unable = append(f.unable, r.Faults...)
	f.expectations(r)
	f.exchanges(r)
	f.reaps(r)
	f.opens(r)
	f.lateness(r)
	f.delays(r)
	f.shares(r)
	r.Verdict = f.verdict()
}

// verdict returns the outcome. A late program explains some faults of the target.
func (f *findings) verdict() Verdict {
	if len(f.late) == 0 {
		f.facts, f.explainable = append(f.facts, f.explainable...), nil
	}
	invalid := slices.Concat(f.unable, f.late)
	switch {
	case len(f.facts) > 0:
		return Verdict{Failed, f.facts, slices.Concat(invalid, f.explainable, f.remarks)}
	case len(invalid) > 0:
		return Verdict{NotValid, slices.Concat(invalid, f.explainable), f.remarks}
	}
	return Verdict{Passed, nil, f.remarks}
}

// expectations evaluates the expectations of the user.
func (f *findings) expectations(r *Result) {
	for i := range r.Expectations {
		e := &r.Expectations[i]
		explained := e.evaluate(r)
		text := fmt.Sprintf("expected %s%s, got %s", e.Name, e.Want, e.Got)
		switch {
		case explained:
			f.late = append(f.late, text+": the delay of loadtest itself decides")
		case !e.OK:
			f.facts = append(f.facts, text)
		}
	}
}

// expects reports whether the user has an expectation with one of the names.
func (r *Result) expects(names ...string) bool {
	return slices.ContainsFunc(r.Expectations, func(e Expectation) bool { return slices.Contains(names, e.Name) })
}

// expectsAny reports whether the user has an expectation with a name that begins with prefix.
func (r *Result) expectsAny(prefix string) bool {
	return slices.ContainsFunc(r.Expectations, func(e Expectation) bool { return strings.HasPrefix(e.Name, prefix) })
}

// blame adds a cause, unless n is 0 or the user has an expectation about it.
func (r *Result) blame(causes *[]string, name string, n uint64, one, more string) {
	if n > 0 && !r.expects(name) {
		*causes = append(*causes, name+": "+format.Plural(n, one, more))
	}
}

// exchanges judges the answers.
func (f *findings) exchanges(r *Result) {
	r.blame(&f.facts, "garbled", r.count(garbled), "connection received a wrong answer", "connections received wrong answers")
	r.blame(&f.facts, "swapped", r.count(swapped), "answer of another connection", "answers of other connections")
	r.blame(&f.facts, "doubled", r.count(doubled), "answer came more than once", "answers came more than once")
	r.blame(&f.facts, "skipped", r.count(skipped), "message has no answer although a later one has",
		"messages have no answer although later ones have")
	r.blame(&f.explainable, "unanswered", r.count(unanswered), "message was not answered", "messages were not answered")
}

// reaps judges which connections the target closed, and when.
func (f *findings) reaps(r *Result) {
	said := ""
	if words := r.Total().Said; words != "" {
		said = fmt.Sprintf("; the target said %q", words)
	}
	r.blame(&f.facts, "false-reaps", r.count(falseReaps), "living connection was closed"+said, "living connections were closed"+said)
	r.blame(&f.explainable, "kept", r.count(kept), "dead connection was not closed", "dead connections were not closed")
	r.blame(&f.unable, "starved", r.count(starved), "connection was not kept alive by loadtest itself",
		"connections were not kept alive by loadtest itself")
	if total := r.Total(); total.Early > 0 {
		text := fmt.Sprintf("early %d by at most %v", total.Early, total.EarliestBy)
		switch {
		case r.expects("early", "early-by"):
		case total.EarliestBy > earlyTolerance:
			f.facts = append(f.facts, text)
		default:
			f.remarks = append(f.remarks, fmt.Sprintf("%s, within the tolerance of %v", text, earlyTolerance))
		}
	}
}

// opens judges whether the connections were opened. Those that failed on this machine are not the
// fault of the target.
func (f *findings) opens(r *Result) {
	missing, local := r.count(openFailed), uint64(0)
	for why, n := range r.Failures {
		if ofThisMachine(why) {
			local += n
		}
	}
	local = min(local, missing)
	r.blame(&f.explainable, "open-failed", missing-local, "connection was not opened", "connections were not opened")
	r.blame(&f.unable, "open-failed", local, "connection was not opened by this machine", "connections were not opened by this machine")
	if total := r.Total(); total.Opened == 0 && missing == 0 && len(r.Errors) == 0 {
		f.unable = append(f.unable, "no connection was opened")
	}
	if r.Interrupted {
		f.unable = append(f.unable, fmt.Sprintf("the run was interrupted after %v", r.Took.Round(time.Millisecond)))
	} else if asked, got := r.churned(); got < leastChurn*asked {
		f.unable = append(f.unable, fmt.Sprintf("%.0f of %.0f connections per second were opened", got, asked))
	}
}

// churned returns the requested rate of connections of a churn, and the real one.
func (r *Result) churned() (asked, got float64) {
	took, total := r.Length("churn").Seconds(), r.Total()
	if took <= 0 || r.Verb != "churn" {
		return 0, 0
	}
	// The ramp reaches half of the connections.
	return r.Setup.Rate * max(0, 1-(r.Setup.Ramp/2).Seconds()/took), float64(total.Opened+total.OpenFailed) / took
}

// ofThisMachine reports whether a connection failed before a packet was sent.
func ofThisMachine(why string) bool {
	for _, local := range []string{"bind", "socket", "epoll_ctl"} {
		if strings.HasPrefix(why, local) {
			return true
		}
	}
	return strings.Contains(why, "cannot assign requested address") || strings.Contains(why, "no buffer space")
}

// delays judges how late this program was. The bound is a tenth of what it measures: the timeout of
// the target, or the patience if the timeout is unknown.
func (f *findings) delays(r *Result) {
	of, name := r.Setup.Timeout, "timeout"
	if of == 0 {
		of, name = r.Setup.Patience, "patience"
	}
	bound := max(of/10, leastOwnDelay)
	for _, phase := range r.phaseNames() {
		own := r.OwnDelay[phase].Max()
		if own <= bound {
			continue
		}
		f.delayed(r, phase, fmt.Sprintf("loadtest itself, not the target, was late by up to %v in phase %s, more than a tenth of the %s", own, phase, name))
	}
}

// delayed adds a delay of this program in a phase. It does not decide if the user has an
// expectation about it.
func (f *findings) delayed(r *Result, phase, text string) {
	isAbout := func(e Expectation) bool {
		of, found := strings.CutPrefix(e.Name, "own-delay.")
		_, isWorst := quantileNames[of]
		return found && (isWorst || strings.HasPrefix(of, phase+"."))
	}
	if slices.ContainsFunc(r.Expectations, isAbout) {
		f.remarks = append(f.remarks, text)
	} else {
		f.late = append(f.late, text)
	}
}

// shares judges which part of a latency is the own delay: at the p99 at most half of it. While the
// connections are opened it is often more. A lateness does not include it.
func (f *findings) shares(r *Result) {
	for _, phase := range r.phaseNames() {
		told, own := r.latency(phase, 0.99), r.OwnDelay[phase].Quantile(0.99)
		if phase != "open" && told.measured && own > max(time.Duration(told.got)/2, leastShare) {
			f.delayed(r, phase, fmt.Sprintf("latency.%s.p99 is %v, and loadtest itself was late by %v at the p99", phase, time.Duration(told.got), own))
		}
	}
}

// lateness judges how late dead connections were closed.
func (f *findings) lateness(r *Result) {
	bound := MostLate(r.Setup.Timeout)
	if p99 := r.Total().Lateness.Quantile(0.99); p99 > bound && r.Setup.Timeout > 0 && !r.expectsAny("lateness.") {
		text := fmt.Sprintf("lateness: p99 of %v, more than %v", p99, bound)
		if p99 > r.Setup.Timeout/2 {
			text += "; a target that suspends verdicts while all are silent needs --outage-grace -1s"
		}
		f.explainable = append(f.explainable, text)
	}
}

// phaseNames returns the names of the phases without repetition.
func (r *Result) phaseNames() (names []string) {
	for _, p := range r.Phases {
		if !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}

// count returns the sum of a count over all groups.
func (r *Result) count(of func(*Result, *Group) uint64) (n uint64) {
	for i := range r.Groups {
		n += of(r, &r.Groups[i])
	}
	return n
}

// These functions count what is a fault of the target in a group. A target may refuse, ignore and
// close the connections of a hostile group.
func garbled(_ *Result, g *Group) uint64 { return g.Garbled }
func swapped(_ *Result, g *Group) uint64 { return g.Swapped }
func doubled(_ *Result, g *Group) uint64 { return g.Doubled }
func starved(_ *Result, g *Group) uint64 { return g.Starved }

func skipped(_ *Result, g *Group) uint64    { return g.unlessHostile(g.Skipped) }
func falseReaps(_ *Result, g *Group) uint64 { return g.unlessHostile(g.Lost) }

func (g *Group) unlessHostile(n uint64) uint64 {
	if g.Hostile {
		return 0
	}
	return n
}

// kept counts dead connections that the target had the time to close.
func kept(r *Result, g *Group) uint64 {
	if r.Setup.Bare || r.Setup.Timeout == 0 || r.Interrupted {
		return 0
	}
	return g.Kept
}

// openFailed counts connections that were not opened, with those never tried.
func openFailed(r *Result, g *Group) uint64 {
	never := uint64(0)
	if g.Behaviour != "churn" && !r.Interrupted && len(r.Errors) == 0 {
		never = uint64(max(g.Connections, 0)) - min(g.Opened, uint64(max(g.Connections, 0)))
	}
	return g.unlessHostile(max(g.OpenFailed, never))
}

// unanswered counts messages of a group that were never answered.
func unanswered(r *Result, g *Group) uint64 {
	var n, late uint64
	for phase, e := range g.Exchanges {
		n += e.Unanswered
		if r.isSettled(phase) {
			late += e.Sent - min(e.Answered+e.Unanswered, e.Sent)
		}
	}
	switch g.Behaviour {
	case "heartbeat", "ping-pong", "one-byte": // others may end while a message is on its way
		n += late - min(late, g.Starved)
	}
	return g.unlessHostile(max(n, g.Unanswered))
}

// isSettled reports whether every message of the phase has had the time for an answer.
func (r *Result) isSettled(phase string) bool {
	last, end := time.Duration(0), time.Duration(0)
	for _, p := range r.Phases {
		if end = max(end, p.To); p.Name == phase {
			last = max(last, p.To)
		}
	}
	limit := settled
	if r.Setup.Patience > 0 {
		limit = min(limit, r.Setup.Patience)
	}
	return last > 0 && end-last >= limit
}
