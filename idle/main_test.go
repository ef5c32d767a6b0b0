package idle

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childEnv names the part of a test that runs in a process of its own: what is stopped, or what dies.
const childEnv = "IDLEWHEEL_TEST_CHILD"

func TestMain(m *testing.M) {
	if child := os.Getenv(childEnv); child != "" {
		os.Exit(runChild(child))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // importing gnet starts two goroutines
}
