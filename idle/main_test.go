package idle

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/internal/testing/needs"
)

// childEnv has the name of a play and an address, for a server in a process of its own.
const childEnv = "IDLEWHEEL_TEST_CHILD"

// runChild is the main function of a child process. On Linux it is runPlay.
var runChild func(arg string)

// TestMain runs the tests, or one of the servers that tests start in a process of its own.
//
// The name of a test file begins with the file that it tests: port_heartbeat_linux_test.go is about
// port.go. The helpers of more than one of them are:
//
//	without sockets, in virtual time
//	  handSite       a Reaper on one loop; the test moves its clock and answers for the kernel
//	  scriptedLoop   an event loop that runs its tasks when the test calls run; scriptedConn
//	  fakeConn       a connection for tables; thinConn: one for benchmarks, without memory
//	  simWorld       gnet for the simulation of package internal/testing/sim
//	with sockets
//	  site           a server on gnet with a Reaper; echo: its handler
//	  wrappedSite    a site with layers around or inside its Reaper; tlsLayer: a layer
//	  fleet          many clients on one goroutine
//	with a server in a process of its own
//	  play, stage    a server with a witness as its handler, and the process; the test stops it
//	  witness        a handler that records what happens to its connections
func TestMain(m *testing.M) {
	if child := os.Getenv(childEnv); child != "" {
		runChild(child)
		return
	}
	flag.Parse()
	// Parallel tests wait for timeouts most of the time.
	_ = flag.Set("test.parallel", needs.Parallel(30))
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // importing gnet starts two goroutines
}
