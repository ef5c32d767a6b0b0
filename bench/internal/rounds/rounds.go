// Package rounds measures subjects in turns and renders the medians of their figures.
package rounds

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"time"
)

// Options are the flags of a comparison.
type Options struct {
	Quick bool
	Runs  int
	Out   string
}

// Flags parses the command line of a program, which by default writes to out. It ends the process
// if the command line is wrong.
func Flags(out string, runs int) Options {
	var o Options
	flag.BoolVar(&o.Quick, "quick", false, "few timers or connections, short times, one round, to standard output: only checks that everything works")
	flag.IntVar(&o.Runs, "runs", runs, "`number` of rounds; the tables show medians over them")
	flag.StringVar(&o.Out, "out", out, "`file` to write to; - is standard output")
	flag.Parse()
	if flag.NArg() > 0 || o.Runs < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if o.Quick {
		o.Runs, o.Out = 1, "-"
	}
	return o
}

// Write writes the text to the file of the options.
func (o Options) Write(text string) error {
	if o.Out == "-" {
		_, err := fmt.Print(text)
		return err
	}
	return os.WriteFile(o.Out, []byte(text), 0o644)
}

// Figures are the results of one subject in one round, by name.
type Figures map[string]float64

// Results are the figures of all rounds by subject.
type Results map[string][]Figures

// Take measures all subjects in each round, so that other load of the machine affects all alike.
// Each round begins with another subject, so that none always follows the same other one.
func (o Options) Take(subjects []string, measure func(subject string) (Figures, error)) (Results, error) {
	results := Results{}
	for round := range o.Runs {
		first := round % len(subjects)
		for _, subject := range slices.Concat(subjects[first:], subjects[:first]) {
			began := time.Now()
			f, err := measure(subject)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", subject, err)
			}
			results[subject] = append(results[subject], f)
			fmt.Fprintf(os.Stderr, "round %d of %d: %s, %.1f s\n", round+1, o.Runs, subject, time.Since(began).Seconds())
		}
	}
	return results, nil
}

// Values returns one figure of a subject in all rounds that have it.
func (r Results) Values(subject, figure string) Values {
	var v Values
	for _, f := range r[subject] {
		if x, ok := f[figure]; ok {
			v = append(v, x)
		}
	}
	slices.Sort(v)
	return v
}
