package result

import (
	"fmt"
	"regexp"
	"slices"
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

// A judge collects the causes of each outcome.
type judge struct {
	*Result
	total       *Group   // without what is no fault of the target
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
	j := judge{Result: r, total: r.faults(), facts: slices.Clone(r.Errors), unable: slices.Clone(r.Faults)}
	j.expectations()
	j.answers()
	j.reaps()
	j.opens()
	j.lateness()
	j.delays()
	r.Verdict = j.verdict()
}

// verdict returns the outcome. A late program explains some faults of the target.
func (j *judge) verdict() Verdict {
	if len(j.late) == 0 {
		j.facts, j.explainable = append(j.facts, j.explainable...), nil
	}
	invalid := slices.Concat(j.unable, j.late)
	switch {
	case len(j.facts) > 0:
		return Verdict{Failed, j.facts, slices.Concat(invalid, j.explainable, j.remarks)}
	case len(invalid) > 0:
		return Verdict{NotValid, slices.Concat(invalid, j.explainable), j.remarks}
	}
	return Verdict{Passed, nil, j.remarks}
}

// expectations evaluates the expectations of the user.
func (j *judge) expectations() {
	for i := range j.Expectations {
		e := &j.Expectations[i]
		explained := e.evaluate(j.Result)
		text := fmt.Sprintf("expected %s%s, got %s", e.Name, e.Want, e.Got)
		switch {
		case explained:
			j.late = append(j.late, text+": the delay of loadtest itself decides")
		case !e.OK:
			j.facts = append(j.facts, text)
		}
	}
}

// expects reports whether the user has an expectation about one of the figures, or about a quantile
// of it.
func (r *Result) expects(figures ...string) bool {
	return slices.ContainsFunc(r.Expectations, func(e Expectation) bool {
		base, _, _ := cutQuantile(e.Name)
		return slices.Contains(figures, base)
	})
}

// blame adds a cause, unless n is 0 or the user has an expectation about it.
func (j *judge) blame(causes *[]string, name string, n uint64, one, more string) {
	if n > 0 && !j.expects(name) {
		*causes = append(*causes, name+": "+format.Plural(n, one, more))
	}
}

func (j *judge) answers() {
	j.blame(&j.facts, "garbled", j.total.Garbled, "connection received a wrong answer", "connections received wrong answers")
	j.blame(&j.facts, "swapped", j.total.Swapped, "answer of another connection", "answers of other connections")
	j.blame(&j.facts, "doubled", j.total.Doubled, "answer came more than once", "answers came more than once")
	j.blame(&j.facts, "skipped", j.total.Skipped, "message has no answer although a later one has",
		"messages have no answer although later ones have")
	j.blame(&j.explainable, "unanswered", j.total.Unanswered, "message was not answered", "messages were not answered")
}

// reaps judges which connections the target closed, and when.
func (j *judge) reaps() {
	said := ""
	if j.total.Said != "" {
		said = fmt.Sprintf("; the target said %q", j.total.Said)
	}
	j.blame(&j.facts, "false-reaps", j.total.Lost, "living connection was closed"+said, "living connections were closed"+said)
	if !j.Setup.Bare && j.Setup.Timeout != 0 && !j.Interrupted { // it had the time to close them
		j.blame(&j.explainable, "kept", j.total.Kept, "dead connection was not closed", "dead connections were not closed")
	}
	j.blame(&j.unable, "starved", j.total.Starved, "connection was not kept alive by loadtest itself",
		"connections were not kept alive by loadtest itself")
	if j.total.Early == 0 || j.expects("early", "early-by") {
		return
	}
	text := fmt.Sprintf("early %d by at most %v", j.total.Early, j.total.EarliestBy)
	if j.total.EarliestBy > earlyTolerance {
		j.facts = append(j.facts, text)
	} else {
		j.remarks = append(j.remarks, fmt.Sprintf("%s, within the tolerance of %v", text, earlyTolerance))
	}
}

// ofThisMachine matches the failures of connections of which no packet was sent.
var ofThisMachine = regexp.MustCompile("^(bind|socket|epoll_ctl)|cannot assign requested address|no buffer space")

// opens judges whether the connections were opened. Those that failed on this machine are not the
// fault of the target.
func (j *judge) opens() {
	missing, local := j.total.OpenFailed, uint64(0)
	for why, n := range j.Failures {
		if ofThisMachine.MatchString(why) {
			local += n
		}
	}
	local = min(local, missing)
	j.blame(&j.explainable, "open-failed", missing-local, "connection was not opened", "connections were not opened")
	j.blame(&j.unable, "open-failed", local, "connection was not opened by this machine", "connections were not opened by this machine")
	if j.total.Opened == 0 && missing == 0 && len(j.Errors) == 0 {
		j.unable = append(j.unable, "no connection was opened")
	}
	took, total := j.Length("churn").Seconds(), j.Total()
	// A ramp has half of the rate.
	asked, tried := j.Setup.Rate*(took-(j.Setup.Ramp/2).Seconds()), float64(total.Opened+total.OpenFailed)
	switch {
	case j.Interrupted:
		j.unable = append(j.unable, fmt.Sprintf("the run was interrupted after %v", j.Took.Round(time.Millisecond)))
	case took > 0 && tried < leastChurn*asked:
		j.unable = append(j.unable, fmt.Sprintf("%.0f of %.0f connections per second were opened", tried/took, asked/took))
	}
}

// lateness judges how late dead connections were closed.
func (j *judge) lateness() {
	bound, timeout := MostLate(j.Setup.Timeout), j.Setup.Timeout
	if p99 := j.total.Lateness.Quantile(0.99); p99 > bound && timeout > 0 && !j.expects("lateness") {
		text := fmt.Sprintf("lateness: p99 of %v, more than %v", p99, bound)
		if p99 > timeout/2 {
			text += "; a target that suspends verdicts while all are silent needs --outage-grace -1s"
		}
		j.explainable = append(j.explainable, text)
	}
}

// delays judges how late this program was: at most by a tenth of what it measures, the timeout of
// the target, or the patience if the timeout is unknown. At the p99 the delay may be half of a
// latency, but while connections are opened it is often more. A lateness does not include it.
func (j *judge) delays() {
	of, name := j.Setup.Timeout, "timeout"
	if of == 0 {
		of, name = j.Setup.Patience, "patience"
	}
	for _, p := range j.Phases {
		causes := &j.late
		if j.expects("own-delay", "own-delay."+p.Name) {
			causes = &j.remarks
		}
		if own := j.OwnDelay[p.Name].Max(); own > max(of/10, leastOwnDelay) {
			*causes = append(*causes, fmt.Sprintf("loadtest itself, not the target, was late by up to %v in phase %s, more than a tenth of the %s",
				own, p.Name, name))
		}
		told, own := j.latency(p.Name, 0.99), j.OwnDelay[p.Name].Quantile(0.99)
		if latency := time.Duration(told.got); p.Name != "open" && told.measured && own > max(latency/2, leastShare) {
			*causes = append(*causes, fmt.Sprintf("latency.%s.p99 is %v, and loadtest itself was late by %v at the p99", p.Name, latency, own))
		}
	}
}

// faults returns the sum of all groups with only those faults that are the target's. It may refuse,
// ignore and close the connections of a hostile group.
func (r *Result) faults() *Group {
	var sum Group
	for _, g := range r.Groups {
		if g.Behaviour != "churn" && !r.Interrupted && len(r.Errors) == 0 {
			neverTried := max(g.Connections-int(g.Opened), 0)
			g.OpenFailed = max(g.OpenFailed, uint64(neverTried))
		}
		g.Unanswered = r.unanswered(&g)
		if g.Hostile {
			g.Lost, g.Skipped, g.OpenFailed, g.Unanswered = 0, 0, 0, 0
		}
		sum.Add(&g)
	}
	return &sum
}

// unanswered counts messages of a group that were never answered. Those of the last moments of a
// run have not had the time.
func (r *Result) unanswered(g *Group) uint64 {
	n, late := g.unansweredMessages(), uint64(0)
	for _, p := range r.Phases {
		e, since := g.Exchanges[p.Name], r.Phases[len(r.Phases)-1].To-p.To
		if e != nil && since >= min(settled, r.Setup.Patience) {
			late += e.Sent - min(e.Answered+e.Unanswered, e.Sent)
		}
	}
	switch g.Behaviour {
	case "heartbeat", "ping-pong", "one-byte": // others may end while a message is on its way
		n += late - min(late, g.Starved)
	}
	return max(n, g.Unanswered)
}
