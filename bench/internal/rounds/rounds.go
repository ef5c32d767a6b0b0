// Package rounds measures subjects in turns and renders the medians of their figures.
package rounds

import (
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
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

// Results are the figures of all rounds, by subject and name.
type Results map[string]map[string]Values

// Take measures all subjects in each round, so that other load of the machine affects all alike.
// Each round begins with another subject, so that none always follows the same other one.
func Take[S fmt.Stringer](o Options, subjects []S, measure func(S) (Figures, error)) (Results, error) {
	results := Results{}
	for _, s := range subjects {
		results[s.String()] = map[string]Values{}
	}
	for round := range o.Runs {
		for turn := range subjects {
			s := subjects[(round+turn)%len(subjects)]
			began := time.Now()
			figures, err := measure(s)
			if err != nil {
				return nil, fmt.Errorf("%v: %w", s, err)
			}
			for name, x := range figures {
				results[s.String()][name] = append(results[s.String()][name], x)
			}
			fmt.Fprintf(os.Stderr, "round %d of %d: %v, %.1f s\n", round+1, o.Runs, s, time.Since(began).Seconds())
		}
	}
	return results, nil
}

// Cell renders a figure of a subject, with the ratio to a base if there is another one.
func (r Results) Cell(subject, figure, base string) string {
	v := r[subject][figure]
	if len(v) == 0 || base == "" || subject == base {
		return v.String()
	}
	return v.String() + " " + v.Ratio(r[base][figure])
}

// Values are the values of one figure. Without values there is no median.
type Values []float64

// Median returns the middle value, or the mean of the two in the middle.
func (v Values) Median() float64 {
	sorted, n := slices.Sorted(slices.Values(v)), len(v)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// String returns the median, with the least and the greatest value in brackets if they differ.
func (v Values) String() string {
	if len(v) == 0 {
		return "-"
	}
	median, least, greatest := number(v.Median()), number(slices.Min(v)), number(slices.Max(v))
	if least == greatest {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, least, greatest)
}

// Ratio returns the median divided by that of a base, with ≈ if the ranges overlap.
func (v Values) Ratio(base Values) string {
	if len(v) == 0 || len(base) == 0 || base.Median() <= 0 {
		return "-"
	}
	ratio := "×" + number(v.Median()/base.Median())
	if slices.Min(v) <= slices.Max(base) && slices.Min(base) <= slices.Max(v) {
		return "≈ " + ratio
	}
	return ratio
}

// number renders a figure with three digits.
func number(x float64) string {
	switch size := max(x, -x); {
	case size == 0, size >= 99.95:
		return Thousands(int(math.Round(x)))
	case size >= 9.995:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.2f", x)
	}
}

// Thousands renders a number with commas.
func Thousands(n int) string {
	if -1000 < n && n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", Thousands(n/1000), max(n, -n)%1000)
}

// Table renders the cells of rows and columns. They hold figures.
func Table[R, C fmt.Stringer](rows []R, columns []C, cell func(R, C) string) string {
	var b strings.Builder
	b.WriteString("| ")
	for _, c := range columns {
		fmt.Fprintf(&b, " | %v", c)
	}
	fmt.Fprintf(&b, " |\n|---|%s\n", strings.Repeat("---:|", len(columns)))
	for _, r := range rows {
		fmt.Fprintf(&b, "| %v", r)
		for _, c := range columns {
			fmt.Fprintf(&b, " | %s", cell(r, c))
		}
		b.WriteString(" |\n")
	}
	return b.String()
}

// Setting says when, by which command, from which commit and on which machine the figures were
// measured.
func (o Options) Setting(command string) string {
	if o.Quick {
		return "**A quick run. It shows that everything works. Its figures have no meaning.**\n"
	}
	commit, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	return fmt.Sprintf("%s, `%s --runs %d`, commit %s, %s. %s with %d cores, %s/%s %s; load averages at the end %s.\n",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), command, o.Runs, strings.TrimSpace(string(commit)), runtime.Version(),
		match("/proc/cpuinfo", `model name\s*: (.*)`), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
		match("/proc/sys/kernel/osrelease", `(\S+)`), match("/proc/loadavg", `(\S+ \S+ \S+)`))
}

// match returns the group of the first match in a file.
func match(path, pattern string) string {
	text, _ := os.ReadFile(path) // other systems have no such file
	if m := regexp.MustCompile(pattern).FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return "unknown"
}
