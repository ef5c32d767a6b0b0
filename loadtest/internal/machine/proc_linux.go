package machine

import (
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
)

// files are the files of /proc. A number that cannot be read is not known, which is no error:
// containers hide some files, and processes end.
type files struct{ root fs.FS }

// proc has the files of this machine.
var proc = files{os.DirFS("/proc")}

// A number is a number in a file. It is 0 if it is not known.
type number struct {
	n     uint64
	known bool
}

// String returns the number for a table.
func (n number) String() string {
	switch {
	case !n.known:
		return "not known"
	case n.n >= math.MaxInt64:
		return "unlimited"
	}
	return format.Count(n.n)
}

// line returns what follows the prefix in the first line with that prefix, or "".
func (f files) line(file, prefix string) string {
	text, _ := fs.ReadFile(f.root, file)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return rest
		}
	}
	return ""
}

// number returns field i after the prefix, in the first line with that prefix. "unlimited" is
// math.MaxUint64.
func (f files) number(file, prefix string, i int) number {
	fields := strings.Fields(f.line(file, prefix))
	if i >= len(fields) {
		return number{}
	}
	if fields[i] == "unlimited" {
		return number{math.MaxUint64, true}
	}
	n, err := strconv.ParseUint(fields[i], 10, 64)
	if err != nil { // n is not 0 if the number is too large
		return number{}
	}
	return number{n, true}
}
