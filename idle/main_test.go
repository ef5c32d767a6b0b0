package idle

import (
	"flag"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// childEnv names the part of a test that runs in a process of its own: what is stopped, or what dies.
const childEnv = "IDLEWHEEL_TEST_CHILD"

func TestMain(m *testing.M) {
	if child := os.Getenv(childEnv); child != "" {
		if name, ok := strings.CutPrefix(child, expiryPrefix); ok {
			h, e := expiryServer(name)
			os.Exit(runEngine(h, e, "tcp://127.0.0.1:0", func() {}))
		}
		os.Exit(runChild(child))
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "4")               // those that are parallel wait for timeouts most of the time
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // importing gnet starts two goroutines
}
