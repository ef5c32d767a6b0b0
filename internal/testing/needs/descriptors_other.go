//go:build !unix

package needs

import (
	"strconv"
	"testing"
)

// Descriptors does nothing where they are not limited.
func Descriptors(testing.TB, int) {}

// Connections returns n where descriptors are not limited.
func Connections(_ testing.TB, n, _, _ int) int { return n }

// Many reports whether this process may have thousands of descriptors.
func Many() bool { return true }

// Parallel returns how many tests may run at the same time.
func Parallel(n int) string {
	if RaceDetector {
		n = min(n, 4)
	}
	return strconv.Itoa(n)
}
