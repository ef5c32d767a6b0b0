// Package needs says what a test needs: time, many descriptors, or 64 bits. A test that cannot have
// it is skipped or becomes smaller.
package needs

import (
	"os"
	"strconv"
	"testing"
)

// Long skips a test, unless IDLEWHEEL_LONG is set: it is the long form of another test.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv("IDLEWHEEL_LONG") == "" {
		t.Skip("a long form: make long runs it")
	}
}

// IsLong reports whether tests take their long form.
func IsLong() bool { return os.Getenv("IDLEWHEEL_LONG") != "" }

// Bits64 skips a test of sizes, which are those of 64-bit systems.
func Bits64(t testing.TB) {
	t.Helper()
	if strconv.IntSize < 64 {
		t.Skipf("needs 64 bits, have %d", strconv.IntSize)
	}
}
