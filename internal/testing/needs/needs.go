// Package needs says what a test needs: time, or many descriptors. A test that cannot have it is
// skipped or becomes smaller.
package needs

import (
	"os"
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
