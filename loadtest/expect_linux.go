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

// expectations are conditions that the user sets for a result. Those whose flag is empty are not checked.
type expectations struct {
	held, falseReaps, early, kept, openFailed, unanswered, latenessP99, latenessMax, latencyP99, openWithin, clientBytes string
}

// A bound is one of them.
type bound struct {
	flag, help string
	value      *string
	byDefault  string // what is expected if nobody says otherwise; empty for nothing
	// check returns what the result has, and whether that is within what is wanted.
	check func(r *result.Result, want string) (got string, ok bool, err error)
}

func (e *expectations) bounds() []bound {
	return []bound{
		{"expect-held", "part of the connections that must be opened and kept while alive, such as `100%`", &e.held, "", held},
		{"expect-false-reaps", "how many living connections the target may close, such as `0`, which is usual", &e.falseReaps, "0",
			atMostCount(func(g *result.Group) uint64 { return g.Lost })},
		{"expect-early", "how many dead ones it may close before their timeout; usually 0", &e.early, "0",
			atMostCount(func(g *result.Group) uint64 { return g.Early })},
		{"expect-kept", "how many dead ones it may keep; usually 0", &e.kept, "0",
			atMostCount(func(g *result.Group) uint64 { return g.Kept })},
		{"expect-open-failed", "how many connections may fail to be opened", &e.openFailed, "",
			atMostCount(func(g *result.Group) uint64 { return g.OpenFailed })},
		{"expect-unanswered", "how many connections may wait for an answer at the end", &e.unanswered, "",
			atMostCount(func(g *result.Group) uint64 { return g.Unanswered })},
		{"expect-lateness-p99", "within which 99 % of the dead are closed after their timeout, such as `250ms`", &e.latenessP99, "",
			atMostDuration(lateness(0.99))},
		{"expect-lateness-max", "within which all are", &e.latenessMax, "", atMostDuration(lateness(1))},
		{"expect-latency-p99", "within which 99 % of the answers come, in the worst phase", &e.latencyP99, "", atMostDuration(worstLatency)},
		{"expect-open-within", "within which all connections are opened", &e.openWithin, "", atMostDuration(openedWithin)},
		{"expect-client-bytes", "of its own memory that this client may take for a connection, such as `400`", &e.clientBytes, "", clientBytes},
	}
}

// number checks a count, of which there may be at most as many as wanted.
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

// length checks a time, which may be at most as long as wanted. That there is none to measure is not as wanted.
func atMostDuration(of func(r *result.Result) (time.Duration, bool)) func(*result.Result, string) (string, bool, error) {
	return func(r *result.Result, want string) (string, bool, error) {
		most, err := time.ParseDuration(want)
		if err != nil {
			return "", false, errors.New("set a duration, such as 250ms")
		}
		got, measured := of(r)
		if !measured {
			return "nothing to measure", false, nil
		}
		return got.String(), got <= most, nil
	}
}

func lateness(q float64) func(*result.Result) (time.Duration, bool) {
	return func(r *result.Result) (time.Duration, bool) {
		total := r.Total()
		return total.Lateness.Quantile(q), total.Lateness.Count() > 0
	}
}

func (e *expectations) add(cmd *cobra.Command) {
	for _, b := range e.bounds() {
		cmd.Flags().StringVar(b.value, b.flag, "", "exit with 1 unless it holds: "+b.help)
	}
}

// check refuses what cannot be read.
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

// judge says which of them hold for a result.
func (e *expectations) evaluate(r *result.Result) {
	r.Expectations = nil
	for _, b := range e.bounds() {
		want := cmp.Or(*b.value, b.byDefault)
		if want == "" {
			continue
		}
		got, ok, err := b.check(r, want)
		if err != nil {
			panic("BUG: " + err.Error()) // it was checked
		}
		if *b.value == "" && ok { // nobody has asked
			continue
		}
		r.Expectations = append(r.Expectations, result.Expectation{Name: strings.TrimPrefix(b.flag, "expect-"), Want: want, Got: got, OK: ok})
	}
}

func held(r *result.Result, want string) (string, bool, error) {
	percent, err := strconv.ParseFloat(strings.TrimSuffix(want, "%"), 64)
	if err != nil || !(percent >= 0 && percent <= 100) {
		return "", false, errors.New("set a part in percent, such as 100%")
	}
	asked, kept := 0, uint64(0)
	for _, g := range r.Groups {
		if g.Behaviour == string(load.Churn) { // they are not to be held
			continue
		}
		asked += g.Connections
		kept += g.Opened - min(g.Lost+g.Starved, g.Opened)
	}
	got := 100 * float64(kept) / float64(max(asked, 1))
	return strconv.FormatFloat(got, 'f', -1, 64) + "%", got >= percent, nil
}

func worstLatency(r *result.Result) (worst time.Duration, measured bool) {
	for _, g := range r.Groups { // each for itself: the many would hide the few
		for _, l := range g.Latency {
			measured = measured || l.Corrected.Count() > 0
			worst = max(worst, l.Corrected.Quantile(0.99))
		}
	}
	return worst, measured
}

func openedWithin(r *result.Result) (time.Duration, bool) {
	total := r.Total()
	for _, p := range r.Phases {
		if p.Name == opening && total.Opened >= uint64(total.Connections) {
			return p.To - p.From, true
		}
	}
	return 0, false
}

func clientBytes(r *result.Result, want string) (string, bool, error) {
	most, err := strconv.ParseFloat(want, 64)
	if err != nil || math.IsNaN(most) {
		return "", false, errors.New("set a number of bytes, such as 400")
	}
	if r.Costs == nil {
		return "nothing to measure", false, nil
	}
	return fmt.Sprintf("%.0f", r.Costs.ClientBytes), r.Costs.ClientBytes <= most, nil
}
