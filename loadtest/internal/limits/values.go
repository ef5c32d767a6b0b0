package limits

import (
	"io/fs"
	"math"
	"strconv"
	"strings"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
)

// A value is a number in /proc. It is 0 if it is not known.
type value struct {
	n     uint64
	known bool
}

// String returns the number for the table.
func (v value) String() string {
	switch {
	case !v.known:
		return "not known"
	case v.n >= math.MaxInt64:
		return "unlimited"
	}
	return format.Count(v.n)
}

// field returns field i of a file that contains only numbers.
func (s system) field(file string, i int) value {
	text, err := fs.ReadFile(s.proc, file)
	if err != nil {
		return value{}
	}
	return parse(strings.Fields(string(text)), i)
}

// fieldAfter returns field i after the prefix, in the first line with that prefix.
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

// parse returns field i as a value. "unlimited" is math.MaxUint64.
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
