package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"
)

// A step is one work with one subject at one size.
type step struct {
	work      work
	candidate candidate
	n         int
}

// String returns the text that --only matches.
func (s step) String() string { return fmt.Sprintf("%s/%s/%d", s.candidate.name, s.work.name, s.n) }

// plan returns the steps of one round: all subjects side by side for each work and size.
func plan(quick bool, only *regexp.Regexp, absent map[string]string) []step {
	var steps []step
	for _, w := range works(quick) {
		for _, n := range w.sizes {
			for _, c := range candidates() {
				s := step{w, c, n}
				if absent[c.name] == "" && c.takesPart(w) && only.MatchString(s.String()) {
					steps = append(steps, s)
				}
			}
		}
	}
	return steps
}

// measurer does the steps of a plan round by round, so that other load of the machine affects all
// subjects alike.
type measurer struct {
	record   *record
	steps    []step
	netty    nettyProgram
	progress io.Writer
}

// run fills the record. It returns the error of ctx, and then the record has the complete rounds. A
// failure of a step is in the record.
func (m *measurer) run(ctx context.Context) error {
	for round := 1; round <= m.record.Rounds; round++ {
		for i, s := range inTurn(m.steps, round) {
			began := time.Now()
			o, err := m.do(ctx, s, round)
			if err != nil {
				m.record.keepRounds(round - 1)
				return err
			}
			fmt.Fprintf(m.progress, "round %d/%d, step %d/%d, %.1f s: %v: %s\n",
				round, m.record.Rounds, i+1, len(m.steps), time.Since(began).Seconds(), s, o)
		}
	}
	return nil
}

// inTurn returns the steps in the order of a round. Each subject of a work and size comes first in
// turn, and each second round goes backwards, so that none always runs after the same other one.
func inTurn(steps []step, round int) []step {
	var all []step
	for len(steps) > 0 {
		n := 1
		for n < len(steps) && steps[n].work.name == steps[0].work.name && steps[n].n == steps[0].n {
			n++
		}
		group := slices.Clone(steps[:n])
		if round%2 == 0 {
			slices.Reverse(group)
		}
		first := round % n
		all = append(append(all, group[first:]...), group[:first]...)
		steps = steps[n:]
	}
	return all
}

func (m *measurer) do(ctx context.Context, s step, round int) (outcome, error) {
	r := m.record.find(s.work.name, s.candidate.name, s.n)
	if r == nil {
		r = &series{Work: s.work.name, Subject: s.candidate.name, N: s.n}
		m.record.Series = append(m.record.Series, r)
		for _, n := range s.work.sizes { // a subject that failed is not tried with more timers
			if f := m.record.find(r.Work, r.Subject, n); n < s.n && f != nil && f.Failure != "" {
				r.Failure = fmt.Sprintf("skipped, as at n = %d: %s", n, f.Failure)
				break
			}
		}
	}
	if r.Failure != "" {
		return outcome{Failure: r.Failure}, nil
	}
	o, err := runChild(ctx, s.candidate, newJob(m.record.Quick, round, s.work, s.candidate, s.n), m.netty)
	if err != nil {
		return o, err
	}
	r.Failure = o.Failure
	if o.Failure == "" {
		r.Runs = append(r.Runs, o.Metrics)
	}
	return o, nil
}

// String returns one line that describes the progress.
func (o outcome) String() string {
	if o.Failure != "" {
		return o.Failure
	}
	for _, key := range []string{"ns", "cpu_ns", "bytes", "cpu_ms_per_s"} {
		if v, ok := o.Metrics[key]; ok {
			return fmt.Sprintf("%s %s", number(v), key)
		}
	}
	return "done"
}
