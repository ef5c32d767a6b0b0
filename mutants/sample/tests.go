package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/idlewheel/idlewheel/mutants/sample/mutant"
)

// A batch is a number of top-level tests of a package that run in one process.
type batch struct {
	pkg         string // within the repository
	dir, binary string // the program has all changes, switched off
	names       []string
	took        time.Duration // without a change, one after the other
	reached     []byte        // by a single test, without a change
}

// run runs the tests, and returns an error if one fails or is much slower than without a change.
func (b *batch) run(env string) (string, error) {
	limit := 10*time.Second + 3*b.took
	ctx, cancel := context.WithTimeout(context.Background(), limit+5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.binary, "-test.short", "-test.failfast", "-test.paniconexit0",
		"-test.timeout", limit.String(), "-test.run", "^("+strings.Join(b.names, "|")+")$")
	cmd.Dir, cmd.WaitDelay = b.dir, time.Second
	cmd.Env = append(os.Environ(), env, "IDLEWHEEL_BASE_SEED=1", "TMPDIR="+path.Dir(b.binary))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // child processes that a test has left
	}
	return string(out), err
}

// measure runs a single test, without a change. If the test fails twice, reached stays nil.
func (b *batch) measure() {
	file := fmt.Sprintf("%s.%s", b.binary, b.names[0])
	for range 2 {
		_ = os.WriteFile(file, make([]byte, mutant.Max), 0o666) // if it fails, ReadFile fails too
		b.took = time.Minute
		began := time.Now()
		_, err := b.run(mutant.Reached + "=" + file)
		if b.took = time.Since(began); err == nil {
			b.reached, _ = os.ReadFile(file)
			return
		}
	}
}

// batches returns the tests that reach a change, those of its own package first, and quick ones
// before slow ones. The tests of a package are sorted by their duration.
func batches(tests []*batch, n int, c change) (all []*batch) {
	last := map[string]*batch{}
	for _, t := range tests {
		if t.reached[n] == 0 {
			continue
		}
		b := last[t.pkg]
		if b == nil || b.took+t.took > min(time.Second<<len(all), 8*time.Second) {
			b = &batch{pkg: t.pkg, dir: t.dir, binary: t.binary}
			last[t.pkg], all = b, append(all, b)
		}
		b.names, b.took = append(b.names, t.names...), b.took+t.took
	}
	isOther := func(b *batch) int { return min(len(strings.TrimPrefix(path.Dir(c.file), b.pkg)), 1) }
	slices.SortStableFunc(all, func(a, b *batch) int {
		return cmp.Or(cmp.Compare(isOther(a), isOther(b)), cmp.Compare(a.took, b.took))
	})
	return all
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// killer returns the test that detects change n, or nothing if it survives. The test has to fail
// twice, because one failure of a timed test may be that of a busy machine.
func killer(all []*batch, n int) string {
	for _, b := range all {
		out, err := b.run(fmt.Sprintf("%s=%d", mutant.Number, n))
		if err != nil {
			_, err = b.run(fmt.Sprintf("%s=%d", mutant.Number, n))
		}
		if err != nil {
			by := append(failure.FindStringSubmatch(out), "", "panic, goroutine left, or timeout")
			return b.pkg + ": " + by[1]
		}
	}
	return ""
}
