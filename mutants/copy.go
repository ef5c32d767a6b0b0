package main

import (
	"bytes"
	"cmp"
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
}

// shared are the packages that both front ends, packages idle and idlenet, are built on.
var shared = []string{
	"internal/connstate", "internal/conntable", "internal/mono", "internal/outage", "internal/verdict", "internal/watch",
}

// testsFor returns the commands that test a mutant. By default they are those of its package, those
// against servers with known faults for loadtest, and the simulation of a front end for others. A
// mutant in a shared package is tried against the simulations of both front ends, and against their
// tests with real sockets last, which take longest.
func (c *workCopy) testsFor(m mutant) (commands []string) {
	dir := path.Dir(m.file)
	for _, test := range c.tests {
		commands = append(commands, strings.ReplaceAll(test, "{package}", "./"+dir))
	}
	if commands != nil {
		return commands
	}
	const simulation, sockets = " -run ^TestSimulation$", " -skip ^TestSimulation$"
	long := fmt.Sprintf("go test -count=1 -timeout %v ", c.timeout)
	short := fmt.Sprintf("go test -short -failfast -count=1 -timeout %v ", c.timeout)
	own := short + "./" + dir
	switch {
	case strings.HasPrefix(dir, "loadtest"):
		return []string{own, short + "./loadtest/internal/truth"}
	case slices.Contains(shared, dir):
		simulations := []string{own, long + "./idle" + simulation, long + "./idlenet" + simulation}
		return append(simulations, short+"./idle"+sockets, short+"./idlenet"+sockets)
	case dir == "idlenet":
		return []string{own, long + "./idlenet" + simulation}
	}
	return []string{own, long + "./idle" + simulation}
}

// checkTests runs the tests without a mutant. They must pass.
func (c *workCopy) checkTests(mutants []mutant) error {
	passed := map[string]bool{}
	for _, m := range mutants {
		for _, command := range c.testsFor(m) {
			if passed[command] {
				continue
			}
			if out, err := c.run(command); err != nil {
				return fmt.Errorf("without a change, %s: %w\n%s", command, err, out)
			}
			passed[command] = true
		}
	}
	return nil
}

// try returns the command that has killed a mutant, or nothing if it has survived.
func (c *workCopy) try(m mutant) (by string, err error) {
	original, changed, err := m.mutate(c.dir)
	if err != nil {
		return "", err
	}
	file := filepath.Join(c.dir, m.file)
	if err := os.WriteFile(file, []byte(changed), 0o666); err != nil {
		return "", err
	}
	defer func() { err = cmp.Or(err, os.WriteFile(file, []byte(original), 0o666)) }()
	if out, err := c.run("go build ./" + path.Dir(m.file)); err != nil {
		return "", fmt.Errorf("%v: it does not compile: %w\n%s", m, err, out)
	}
	for _, command := range c.testsFor(m) {
		if _, err := c.run(command); err != nil {
			return command, nil
		}
	}
	return "", nil
}

// run runs a command in the copy.
func (c *workCopy) run(command string) (out []byte, err error) {
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
