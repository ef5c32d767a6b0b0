package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A workCopy is a copy of the repository in which mutants are tried.
type workCopy struct {
	dir     string
	timeout time.Duration
	tests   []string
	sources map[string]string // without a mutant
}

// newCopy copies the tracked files in their current state.
func newCopy(root string, timeout time.Duration, tests []string) (*workCopy, error) {
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	files, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("mutants: git ls-files in %s: %w", root, err)
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	c := &workCopy{dir, timeout, tests, make(map[string]string)}
	for _, file := range strings.FieldsFunc(string(files), func(r rune) bool { return r == 0 }) {
		b, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) { // deleted in the working tree
			continue
		}
		if err == nil {
			err = c.write(file, b)
		}
		if err != nil {
			c.remove()
			return nil, err
		}
		if strings.HasSuffix(file, ".go") {
			c.sources[file] = string(b)
		}
	}
	return c, nil
}

// shared are the packages that both front ends, packages idle and idlenet, are built on.
var shared = []string{
	"internal/connstate", "internal/conntable", "internal/mono", "internal/outage", "internal/verdict", "internal/watch",
}

// testsFor returns the tests for a mutant. By default they are those of its package, those against
// servers with known faults for loadtest, and the simulation of a front end for others. A mutant in
// a shared package is tried against the simulations of both front ends, and against their tests
// with real sockets last, which take longest.
func (c *workCopy) testsFor(m mutant) []string {
	if c.tests != nil {
		return c.tests
	}
	const truth = "loadtest/internal/truth"
	short := fmt.Sprintf("go test -short -failfast -count=1 -timeout %v ", c.timeout)
	tests := []string{short + "{package}"}
	if strings.HasPrefix(m.file, "loadtest/") {
		if _, ok := c.sources[truth+"/doc.go"]; ok {
			tests = append(tests, short+"./"+truth)
		}
		return tests
	}
	dir, fronts := path.Dir(m.file), []string{"idle"}
	isShared := slices.Contains(shared, dir)
	switch {
	case isShared:
		fronts = []string{"idle", "idlenet"}
	case dir == "idlenet":
		fronts = []string{"idlenet"}
	}
	var last []string
	for _, front := range fronts {
		if !c.hasSimulation(front) {
			continue
		}
		tests = append(tests, fmt.Sprintf("go test -count=1 -timeout %v ./%s -run ^TestSimulation$", c.timeout, front))
		if isShared {
			last = append(last, short+"./"+front+" -skip ^TestSimulation$")
		}
	}
	return append(tests, last...)
}

func (c *workCopy) hasSimulation(dir string) bool {
	for file, source := range c.sources {
		if path.Dir(file) == dir && strings.HasSuffix(file, "_test.go") && strings.Contains(source, "func TestSimulation(") {
			return true
		}
	}
	return false
}

func (c *workCopy) remove() { _ = os.RemoveAll(c.dir) }

func (c *workCopy) write(file string, b []byte) error {
	to := filepath.Join(c.dir, file)
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o666)
}

// mutate returns the source of a mutant.
func (c *workCopy) mutate(m mutant) (string, error) {
	source, ok := c.sources[m.file]
	if !ok {
		return "", fmt.Errorf("mutants: %s: no such file", m.file)
	}
	return m.apply(source)
}

// checkTests runs the tests without a mutant. They must pass.
func (c *workCopy) checkTests(mutants []mutant) error {
	passed := map[string]bool{}
	for _, m := range mutants {
		for _, test := range c.testsFor(m) {
			command := commandOf(test, m)
			if passed[command] {
				continue
			}
			if out, err := c.command(command); err != nil {
				return fmt.Errorf("mutants: without a change, %s: %w\n%s", command, err, out)
			}
			passed[command] = true
		}
	}
	return nil
}

// try returns the command that has killed a mutant, or nothing if it has survived.
func (c *workCopy) try(m mutant) (by string, err error) {
	source, err := c.mutate(m)
	if err != nil {
		return "", err
	}
	if err := c.write(m.file, []byte(source)); err != nil {
		return "", err
	}
	defer func() {
		if restored := c.write(m.file, []byte(c.sources[m.file])); err == nil {
			err = restored
		}
	}()
	if out, err := c.command(commandOf("go build {package}", m)); err != nil {
		return "", fmt.Errorf("mutants: %s: %s: it does not compile: %w\n%s", m.file, m.description, err, out)
	}
	for _, test := range c.testsFor(m) {
		command := commandOf(test, m)
		if _, err := c.command(command); err != nil {
			return command, nil
		}
	}
	return "", nil
}

func commandOf(test string, m mutant) string {
	return strings.ReplaceAll(test, "{package}", "./"+path.Dir(m.file))
}

// command runs a command in the copy.
func (c *workCopy) command(command string) (out []byte, err error) {
	// The timeout of go test expires first.
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout+30*time.Second)
	defer cancel()
	words := strings.Fields(command)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.WaitDelay = c.dir, 5*time.Second
	cmd.Env = append(os.Environ(), "IDLEWHEEL_SIMULATE=20s", "GOWORK=off")
	out, err = cmd.CombinedOutput()
	return bytes.TrimSpace(out), err
}
