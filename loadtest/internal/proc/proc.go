// Package proc reads numbers from the files of Linux in /proc. A number that cannot be read is not
// known, which is no error: containers hide some files, and processes end.
package proc

import (
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
)

// Files are the files of /proc.
type Files struct{ FS fs.FS }

// System returns the files of this machine.
func System() Files { return Files{os.DirFS("/proc")} }

// A Number is a number in a file. It is 0 if it is not known.
type Number struct {
	N     uint64
	Known bool
}

// String returns the number for a table.
func (n Number) String() string {
	switch {
	case !n.Known:
		return "not known"
	case n.N >= math.MaxInt64:
		return "unlimited"
	}
	return format.Count(n.N)
}

// Text returns the content of a file, or "".
func (f Files) Text(file string) string {
	text, _ := fs.ReadFile(f.FS, file)
	return string(text)
}

// Line returns what follows the prefix in the first line with that prefix, or "".
func (f Files) Line(file, prefix string) string {
	for line := range strings.Lines(f.Text(file)) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return rest
		}
	}
	return ""
}

// Field returns field i of a file that contains only numbers.
func (f Files) Field(file string, i int) Number { return Parse(f.Text(file), i) }

// FieldAfter returns field i after the prefix, in the first line with that prefix.
func (f Files) FieldAfter(file, prefix string, i int) Number { return Parse(f.Line(file, prefix), i) }

// Parse returns field i of a text. "unlimited" is math.MaxUint64.
func Parse(text string, i int) Number {
	fields := strings.Fields(text)
	if i >= len(fields) {
		return Number{}
	}
	if fields[i] == "unlimited" {
		return Number{math.MaxUint64, true}
	}
	n, err := strconv.ParseUint(fields[i], 10, 64)
	if err != nil { // n is not 0 if the number is too large
		return Number{}
	}
	return Number{n, true}
}
