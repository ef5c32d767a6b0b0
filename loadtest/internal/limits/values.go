package limits

import (
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"
)

// A value is a number in /proc, or 0 if it is not known.
type value struct {
	n     uint64
	known bool
}

// String returns the number as the user reads it.
func (v value) String() string {
	switch {
	case !v.known:
		return "not known"
	case v.n >= math.MaxInt64:
		return "unlimited"
	}
	return count(v.n)
}

// count returns a number with commas: 1,000,000.
func count(n uint64) string {
	if n < 1000 {
		return strconv.FormatUint(n, 10)
	}
	return fmt.Sprintf("%s,%03d", count(n/1000), n%1000)
}

// amount returns a number of bytes as the user reads it.
func bytesText(n uint64) string {
	if n < 1e9 {
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}

// field returns the i-th of the numbers that a file consists of.
func (s system) field(file string, i int) value {
	text, err := fs.ReadFile(s.proc, file)
	if err != nil {
		return value{}
	}
	return parse(strings.Fields(string(text)), i)
}

// after returns the i-th field after the prefix, in the first line of a file that begins with it.
func (s system) fieldAfter(file, prefix string, i int) value {
	text, err := fs.ReadFile(s.proc, file)
	if err != nil {
		return value{}
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return parse(strings.Fields(rest), i)
		}
	}
	return value{}
}

// parse returns a field as a value. The limit "unlimited" is the largest there is.
func parse(fields []string, i int) value {
	if i >= len(fields) {
		return value{}
	}
	if fields[i] == "unlimited" {
		return value{math.MaxUint64, true}
	}
	n, err := strconv.ParseUint(fields[i], 10, 64)
	if err != nil {
		return value{}
	}
	return value{n, true}
}

// lower returns the lower of two values, or the one that is known.
func lower(a, b value) value {
	if !a.known || b.known && b.n < a.n {
		return b
	}
	return a
}
