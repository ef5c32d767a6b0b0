package page

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

const (
	nbsp = "\u00a0" // keeps a number and its unit on one line
	none = "–"
)

// A unit labels an axis. The last unit with a from up to the greatest value applies.
type unit struct {
	name       string
	size, from float64
}

var (
	plain   = []unit{{"", 1, 0}}
	seconds = []unit{{"s", 1, 0}, {"min", 60, 240}, {"h", 3600, 4 * 3600}}
	memory  = []unit{{"B", 1, 0}, {"KiB", 1 << 10, 1 << 10}, {"MiB", 1 << 20, 1 << 20}, {"GiB", 1 << 30, 1 << 30}}
)

// unitFor returns the unit for values up to greatest.
func unitFor(units []unit, greatest float64) unit {
	fit := units[0]
	for _, u := range units {
		if greatest >= u.from {
			fit = u
		}
	}
	return fit
}

// grouped formats a number with the given decimals, and commas between thousands.
func grouped(v float64, decimals int) string {
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(math.Abs(v), 'f', decimals, 64), ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	if v < 0 {
		return "-" + whole
	}
	return whole
}

// count formats a number of things.
func count[T int | uint64](n T) string { return grouped(float64(n), 0) }

// plural formats a number of things with their noun.
func plural[T int | uint64](n T, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + more
}

// short formats a number with three significant digits, without trailing zeros of a fraction.
func short(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return none
	}
	decimals := 2
	switch a := math.Abs(v); {
	case a >= 99.95:
		decimals = 0
	case a >= 9.995:
		decimals = 1
	case a < 0.0995 && a > 0:
		decimals = 3
	}
	s := grouped(v, decimals)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// duration formats a duration with three digits, a long one in minutes or hours.
func duration(d time.Duration) string {
	switch a := d.Abs(); {
	case a == 0:
		return "0"
	case a < 999500*time.Nanosecond:
		return short(float64(d)/1e3) + nbsp + "µs"
	case a < 999500*time.Microsecond:
		return short(float64(d)/1e6) + nbsp + "ms"
	case a < 2*time.Minute:
		return short(d.Seconds()) + nbsp + "s"
	case a < 2*time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%d%smin %d%ss", int(d.Minutes()), nbsp, int(d.Abs().Seconds())%60, nbsp)
	}
	d = d.Round(time.Minute)
	return fmt.Sprintf("%s%sh %d%smin", count(int(d.Hours())), nbsp, int(d.Abs().Minutes())%60, nbsp)
}

// size formats a number of bytes.
func size(bytes float64) string {
	u := unitFor(memory, math.Abs(bytes))
	return short(bytes/u.size) + nbsp + u.name
}

// spread formats the median, p99 and maximum of a Histogram in one line.
func spread(h *result.Histogram) string {
	if h.Count() == 0 {
		return none
	}
	return quantile(h, "p50", 0.5) + " · " + quantile(h, "p99", 0.99) + " · " + quantile(h, "max", 1)
}

// quantile formats a quantile with its name. An empty Histogram has no quantile.
func quantile(h *result.Histogram, name string, q float64) string {
	if h.Count() == 0 {
		return name + nbsp + none
	}
	return name + nbsp + duration(h.Quantile(q))
}

// some returns the first elements, and the number of the others as text.
func some(all []string, most int) []string {
	if len(all) <= most {
		return all
	}
	return append(slices.Clone(all[:most]), "and "+count(len(all)-most)+" more")
}

// clipped shortens a text that has no room to wrap.
func clipped(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
