package idle

import (
	"flag"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/internal/testing/needs"
)

// childEnv names the part of a test that runs in a process of its own, so that the test can stop or
// kill it.
const childEnv = "IDLEWHEEL_TEST_CHILD"

// childKinds are further main functions of child processes, by the prefix of the value of childEnv.
var childKinds = map[string]func(arg string) int{}

func TestMain(m *testing.M) {
	if child := os.Getenv(childEnv); child != "" {
		kind, arg, _ := strings.Cut(child, " ")
		if run := childKinds[kind]; run != nil {
			os.Exit(run(arg))
		}
		if name, ok := strings.CutPrefix(child, expiryPrefix); ok {
			h, e := expiryServer(name)
			os.Exit(runEngine(h, e, "tcp://127.0.0.1:0", func() {}))
		}
		if name, ok := strings.CutPrefix(child, silentPrefix); ok {
			h, e := silentServer(name)
			os.Exit(runEngine(h, e, "tcp://127.0.0.1:0", func() {}))
		}
		os.Exit(runChild(child))
	}
	flag.Parse()
	// Parallel tests wait for timeouts most of the time.
	_ = flag.Set("test.parallel", needs.Parallel(12))
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // importing gnet starts two goroutines
}
