// Package format writes numbers for people: in the summary of a run, on its page and in reports.
package format

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// None stands for a number that is not known.
const None = "–"

// Fixed writes a number with the given decimals, and commas between thousands.
func Fixed(v float64, decimals int) string {
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	for i := strings.IndexByte(s+".", '.') - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count writes a number of things.
func Count[T int | uint64](n T) string { return Fixed(float64(n), 0) }

// Plural writes a number of things with their noun.
func Plural[T int | uint64](n T, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + more
}

// Number writes a number with three significant digits, but at most three decimals.
func Number(v float64) string {
	if math.Abs(v) < 0.0005 {
		return "0"
	}
	decimals := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	s := Fixed(v, min(max(decimals, 0), 3))
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// Bytes writes a number of bytes with a binary unit.
func Bytes[T uint64 | float64](n T) string {
	v := float64(n)
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if math.Abs(v) < 1<<10 {
			return Number(v) + " " + unit
		}
		v /= 1 << 10
	}
	return Number(v) + " GiB"
}

// Duration writes a duration with three digits, a long one in minutes or hours.
func Duration(d time.Duration) string {
	switch a := d.Abs(); {
	case a == 0:
		return "0"
	case a < 999_500*time.Nanosecond:
		return Number(float64(d)/1e3) + " µs"
	case a < 999_500*time.Microsecond:
		return Number(float64(d)/1e6) + " ms"
	case a < 2*time.Minute:
		return Number(d.Seconds()) + " s"
	case a < 2*time.Hour:
		seconds := int(d.Round(time.Second).Seconds())
		return Count(seconds/60) + " min " + strconv.Itoa(max(seconds, -seconds)%60) + " s"
	}
	minutes := int(d.Round(time.Minute).Minutes())
	return Count(minutes/60) + " h " + strconv.Itoa(max(minutes, -minutes)%60) + " min"
}
