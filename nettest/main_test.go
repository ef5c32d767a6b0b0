package nettest

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// roleVariable names the role of a child process.
const roleVariable = "IDLEWHEEL_NETTEST_ROLE"

// roles are what a child process of a test can do. A role ends when the parent closes its input.
var roles = map[string]func(args []string) error{
	"stall server": stallServer,
	"stall client": stallClient,
	"gRPC client":  grpcClientProcess,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(roleVariable); name != "" {
		if err := roles[name](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
			os.Exit(1)
		}
		return
	}
	// go test only detects changes in the module of a test, and would report "ok (cached)" after a
	// change of idlenet. It caches no result of a test without a log of the files that were read.
	flag.Parse()
	_ = flag.Set("test.testlogfile", "")
	_ = flag.Set("test.parallel", "100") // most tests wait most of the time
	os.Exit(m.Run())
}

// A child is this test binary in one of the roles. It answers each line with a JSON value. It is
// killed when the test ends.
type child struct {
	*exec.Cmd
	t       testing.TB
	in      io.Writer
	answers *json.Decoder
}

func startRole(t testing.TB, role string, args ...string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &child{cmd, t, in, json.NewDecoder(out)}
}

// ask sends a line to a child, and decodes its answer.
func (c *child) ask(line string, answer any) {
	c.t.Helper()
	_, err := fmt.Fprintln(c.in, line)
	require.NoError(c.t, err)
	c.read(answer)
}

// read decodes the next answer of a child.
func (c *child) read(answer any) {
	c.t.Helper()
	require.NoError(c.t, c.answers.Decode(answer))
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.Process.Signal(s))
}

// answer prints a value, and another one for each line of input.
func answer(first any, next func(line string) any) error {
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(first); err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := out.Encode(next(lines.Text())); err != nil {
			return err
		}
	}
	return lines.Err()
}

// program skips a test if a program is missing. In CI the test fails.
func program(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}
