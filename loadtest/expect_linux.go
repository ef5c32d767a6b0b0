package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// expectations are the values of the --expect flags. An empty one is not set.
type expectations struct {
	held, falseReaps, early, kept, openFailed, unanswered, latenessP99, latenessMax, latencyP99, openWithin, clientBytes string
}

// A bound is one of the --expect flags.
type bound struct {
	flag, help string
	value      *string
	byDefault  string // applies if the flag is empty; empty for none
	// check returns the value of the result and whether it is within the bound.
	check func(r *result.Result, want string) (got string, ok bool, err error)
}

func (e *expectations) bounds() []bound {
	return []bound{
		{"expect-held", "fail below this `part` of connections opened and not lost, such as 100%", &e.held, "", held},
		{"expect-false-reaps", "fail above this `number` of living connections closed by the target (default 0)", &e.falseReaps, "0",
			atMostCount(func(g *result.Group) uint64 { return g.Lost })},
		{"expect-early", "fail above this `number` of dead connections closed before their timeout (default 0)", &e.early, "0",
			atMostCount(func(g *result.Group) uint64 { return g.Early })},
		{"expect-kept", "fail above this `number` of dead connections kept by the target (default 0)", &e.kept, "0",
			atMostCount(func(g *result.Group) uint64 { return g.Kept })},
		{"expect-open-failed", "fail above this `number` of connections that could not be opened", &e.openFailed, "",
			atMostCount(func(g *result.Group) uint64 { return g.OpenFailed })},
		{"expect-unanswered", "fail above this `number` of connections without an answer at the end", &e.unanswered, "",
			atMostCount(func(g *result.Group) uint64 { return g.Unanswered })},
		{"expect-lateness-p99", "fail if the p99 of the time from timeout to close exceeds this `duration`", &e.latenessP99, "",
			atMostDuration(lateness(0.99))},
		{"expect-lateness-max", "fail if the maximum of the time from timeout to close exceeds this `duration`", &e.latenessMax, "", atMostDuration(lateness(1))},
		{"expect-latency-p99", "fail if the p99 of the time to an answer, in the worst phase, exceeds this `duration`", &e.latencyP99, "", atMostDuration(worstLatency)},
		{"expect-open-within", "fail if opening all connections takes longer than this `duration`", &e.openWithin, "", atMostDuration(openedWithin)},
		{"expect-client-bytes", "fail above this `number` of bytes of client memory per connection", &e.clientBytes, "", clientBytes},
	}
}

// atMostCount returns a check that a count is at most as wanted.
func atMostCount(of func(g *result.Group) uint64) func(*result.Result, string) (string, bool, error) {
	return func(r *result.Result, want string) (string, bool, error) {
		n, err := strconv.ParseUint(want, 10, 64)
		if err != nil {
			return "", false, errors.New("set a number, such as 0")
		}
		total := r.Total()
		return fmt.Sprint(of(&total)), of(&total) <= n, nil
	}
}

// atMostDuration returns a check that a duration is at most as wanted. It fails if there is none.
func atMostDuration(of func(r *result.Result) (time.Duration, bool)) func(*result.Result, string) (string, bool, error) {
	return func(r *result.Result, want string) (string, bool, error) {
		most, err := time.ParseDuration(want)
		if err != nil {
			return "", false, errors.New("set a duration, such as 250ms")
		}
		got, measured := of(r)
		if !measured {
			return "not measured", false, nil
		}
		return got.String(), got <= most, nil
	}
}

// lateness returns a quantile of the lateness of all reaps.
func lateness(q float64) func(*result.Result) (time.Duration, bool) {
	return func(r *result.Result) (time.Duration, bool) {
		total := r.Total()
		return total.Lateness.Quantile(q), total.Lateness.Count() > 0
	}
}

// add adds the --expect flags.
func (e *expectations) add(cmd *cobra.Command) {
	for _, b := range e.bounds() {
		cmd.Flags().StringVar(b.value, b.flag, "", b.help)
	}
}

// check returns an error for values that cannot be parsed.
func (e *expectations) check() error {
	var errs []error
	for _, b := range e.bounds() {
		if *b.value == "" {
			continue
		}
		if _, _, err := b.check(&result.Result{}, *b.value); err != nil {
			errs = append(errs, fmt.Errorf("--%s %s: %w", b.flag, *b.value, err))
		}
	}
	return errors.Join(errs...)
}

// evaluate adds the expectations to a result. A default that holds is left out.
func (e *expectations) evaluate(r *result.Result) {
	r.Expectations = nil
	for _, b := range e.bounds() {
		want := cmp.Or(*b.value, b.byDefault)
		if want == "" {
			continue
		}
		got, ok, err := b.check(r, want)
		if err != nil {
			panic("BUG: " + err.Error()) // check was not called
		}
		if *b.value == "" && ok {
			continue
		}
		r.Expectations = append(r.Expectations, result.Expectation{Name: strings.TrimPrefix(b.flag, "expect-"), Want: want, Got: got, OK: ok})
	}
}

// held checks the percentage of connections that were opened and not lost.
func held(r *result.Result, want string) (string, bool, error) {
	percent, err := strconv.ParseFloat(strings.TrimSuffix(want, "%"), 64)
	if err != nil || !(percent >= 0 && percent <= 100) {
		return "", false, errors.New("set a percentage, such as 100%")
	}
	requested, kept := 0, uint64(0)
	for _, g := range r.Groups {
		if g.Behaviour == string(load.Churn) { // its connections are not held
			continue
		}
		requested += g.Connections
		kept += g.Opened - min(g.Lost+g.Starved, g.Opened)
	}
	got := 100 * float64(kept) / float64(max(requested, 1))
	return strconv.FormatFloat(got, 'f', -1, 64) + "%", got >= percent, nil
}

// worstLatency returns the highest p99 of a group in a phase.
func worstLatency(r *result.Result) (worst time.Duration, measured bool) {
	for _, g := range r.Groups { // not the total, where large groups hide small ones
		for _, l := range g.Latency {
			measured = measured || l.Corrected.Count() > 0
			worst = max(worst, l.Corrected.Quantile(0.99))
		}
	}
	return worst, measured
}

// openedWithin returns the time in which all connections were opened.
func openedWithin(r *result.Result) (time.Duration, bool) {
	total := r.Total()
	for _, p := range r.Phases {
		if p.Name == opening && total.Opened >= uint64(total.Connections) {
			return p.To - p.From, true
		}
	}
	return 0, false
}

// clientBytes checks the client memory per connection.
func clientBytes(r *result.Result, want string) (string, bool, error) {
	most, err := strconv.ParseFloat(want, 64)
	if err != nil || math.IsNaN(most) {
		return "", false, errors.New("set a number of bytes, such as 400")
	}
	if r.Costs == nil {
		return "not measured", false, nil
	}
	return fmt.Sprintf("%.0f", r.Costs.ClientBytes), r.Costs.ClientBytes <= most, nil
}
