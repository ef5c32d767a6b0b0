// Package rounds measures subjects in turns and renders the medians of their figures.
package rounds

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"time"
)

// Options are flags of a comparison.
type Options struct {
	Quick bool
	Runs  int
}

// Main is the main function of a comparison: it writes the text that compare returns to a file,
// which is out without a flag.
func Main(name, out string, runs int, compare func(Options) (string, error)) {
	var o Options
	flag.BoolVar(&o.Quick, "quick", false, "few timers or connections, short times, one round, to standard output: only checks that everything works")
	flag.IntVar(&o.Runs, "runs", runs, "`number` of rounds; the tables show medians over them")
	flag.StringVar(&out, "out", out, "`file` to write to; - is standard output")
	flag.Parse()
	if flag.NArg() > 0 || o.Runs < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if o.Quick {
		o.Runs, out = 1, "-"
	}
	text, err := compare(o)
	if err == nil {
		err = write(out, text)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// write writes a text to a file, or to standard output if the name is -.
func write(file, text string) error {
	if file == "-" {
		_, err := fmt.Print(text)
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// Figures are the results of one subject in one round, by name.
type Figures map[string]float64

// Results are the figures of all rounds by subject.
type Results map[string][]Figures

// Take measures all subjects in each round, so that other load of the machine affects all alike.
// Each round begins with another subject, so that none always follows the same other one.
func Take[S fmt.Stringer](o Options, subjects []S, measure func(S) (Figures, error)) (Results, error) {
	results := Results{}
	for round := range o.Runs {
		for turn := range subjects {
			s := subjects[(round+turn)%len(subjects)]
			name, began := s.String(), time.Now()
			f, err := measure(s)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			results[name] = append(results[name], f)
			fmt.Fprintf(os.Stderr, "round %d of %d: %s, %.1f s\n", round+1, o.Runs, name, time.Since(began).Seconds())
		}
	}
	return results, nil
}

// Cell renders a figure of a subject, with the ratio to a base if there is another one.
func (r Results) Cell(subject, figure, base string) string {
	v := r.Values(subject, figure)
	if len(v) == 0 || base == "" || subject == base {
		return v.String()
	}
	return v.String() + " " + v.Ratio(r.Values(base, figure))
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
