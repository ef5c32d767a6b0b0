// Package recipe runs the recipes and their clients in tests.
package recipe

import (
	"bytes"
	"flag"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Timeout is the timeout of servers in tests. A living client sends something in each Beat.
const (
	Timeout = 1500 * time.Millisecond
	Beat    = Timeout / 5
)

// patience bounds how long a test waits for something that must happen.
const patience = 30 * time.Second

// variable tells the binary of a test to be the server of the recipe.
const variable = "IDLEWHEEL_RECIPE"

// Main runs the tests of a recipe. In the processes of Serve it calls the main function of the
// recipe.
func Main(m *testing.M, main func()) {
	if os.Getenv(variable) != "" {
		flag.CommandLine = flag.NewFlagSet(os.Args[0], flag.ExitOnError) // without those of tests
		main()
		return
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "100") // tests wait most of the time
	// Go only detects changes in the module of a test. It caches no result of a test without a log
	// of the files that were read.
	_ = flag.Set("test.testlogfile", "")
	os.Exit(m.Run())
}

// A Process is a program that a test has started. It is ended when the test ends. Safe for
// concurrent use.
type Process struct {
	*exec.Cmd
	t     testing.TB
	input io.Writer
	ended chan struct{} // closed when the process has ended

	mu     sync.Mutex
	output bytes.Buffer // guarded by mu; stdout and stderr
}

// Serve starts the server of the recipe with these arguments, and returns its address.
func Serve(t testing.TB, args ...string) (server *Process, addr string) {
	t.Helper()
	server = Start(t, Command(append([]string{"-addr", "127.0.0.1:0"}, args...)...))
	return server, server.Await(`listening on (\S+)`)[1]
}

// Command returns the command that runs the server of the recipe.
func Command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), variable+"=1")
	return cmd
}

// Client starts a program.
func Client(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	return Start(t, Program(t, name, args...))
}

// Run runs a program, requires that it succeeds, and returns its output.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := Program(t, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// Program returns a command. If it is not installed, the test is skipped. In CI the test fails.
func Program(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	} else if err != nil {
		t.Skip(err)
	}
	return exec.CommandContext(t.Context(), path, args...)
}

// Start starts a command.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, t: t, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p, p
	var err error
	if p.input, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.stop)
	return p
}

// stop ends the process: with SIGTERM, and with SIGKILL if it does not end.
func (p *Process) stop() {
	_ = p.Process.Signal(syscall.SIGCONT)
	_ = p.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		_ = p.Process.Kill()
		<-p.ended
	}
	if p.t.Failed() {
		p.t.Logf("the output of %q:\n%s", p.Args, p.Output())
	}
}

// Write takes output of the process.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}

// Output returns the output up to now.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// Say writes a line to the input of the process.
func (p *Process) Say(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.input, line+"\n"); err != nil {
		p.t.Fatalf("%q takes no input: %v", p.Args, err)
	}
}

// Live has clients say something in each Beat of three timeouts.
func Live(clients ...*Process) {
	for range 3 * Timeout / Beat {
		for _, c := range clients {
			c.Say("beat")
		}
		time.Sleep(Beat)
	}
}

// Await waits until the output has a pattern, and returns the match and its groups.
func (p *Process) Await(pattern string) (match []string) {
	p.t.Helper()
	is := regexp.MustCompile(pattern)
	Eventually(p.t, pattern, func() bool {
		ended := p.hasEnded()
		match = is.FindStringSubmatch(p.Output())
		if ended && match == nil {
			p.t.Fatalf("%q has ended without %q", p.Args, pattern)
		}
		return match != nil
	})
	return match
}

// AwaitEnd waits until the process has ended, and returns its exit code.
func (p *Process) AwaitEnd() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%q does not end:\n%s", p.Args, p.Output())
	}
	return p.ProcessState.ExitCode()
}

// RequireAlive requires that the process runs.
func (p *Process) RequireAlive() {
	p.t.Helper()
	if p.hasEnded() {
		p.t.Fatalf("%q has ended", p.Args)
	}
}

func (p *Process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// RequireNone requires that the output lacks a pattern.
func (p *Process) RequireNone(pattern string) {
	p.t.Helper()
	if found := regexp.MustCompile(pattern).FindString(p.Output()); found != "" {
		p.t.Fatalf("the output of %q has %q", p.Args, found)
	}
}

// Count returns how many lines of the output have a text.
func (p *Process) Count(text string) (n int) {
	for line := range strings.Lines(p.Output()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// Eventually waits until a condition is true.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("waited %v in vain for %s", patience, what)
		}
	}
}
