package rounds

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Values are sorted values of one figure. Without values there is no median.
type Values []float64

// Median returns the middle value, or the mean of the two in the middle.
func (v Values) Median() float64 {
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// String returns the median, with the least and the greatest value in brackets if they differ.
func (v Values) String() string {
	if len(v) == 0 {
		return "-"
	}
	median, least, greatest := number(v.Median()), number(v[0]), number(v[len(v)-1])
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
	if v[0] <= base[len(base)-1] && base[0] <= v[len(v)-1] {
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
	switch {
	case n < 0:
		return "-" + Thousands(-n)
	case n < 1000:
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", Thousands(n/1000), n%1000)
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
