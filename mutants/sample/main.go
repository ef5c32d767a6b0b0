// Command sample changes every statement and condition of packages, one at a time, draws some of
// the changes at random, and runs the tests that reach each. A change that no test detects
// survives: a test is missing, or survivors.txt gives the reason why the change is accepted.
//
//	go run ./sample [-seed number] [-n number] [-run regexp] [-in packages] [-tests packages]
//
// A statement is left out, a condition is made true or false, and a result is made zero. All
// changes of a package are compiled at once, and an environment variable switches one on. The exit
// code is 1 if a change survives without a reason, and 2 after an error.
//
// The program gremlins (v0.5.0) was not used because it leaves out no statements, draws no sample,
// and compiles and runs all tests again for each change.
package main

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/idlewheel/idlewheel/mutants/sample/mutant"
)

//go:embed survivors.txt
var survivors string

//go:embed mutant/mutant.go
var mutantSource []byte

const targets = "idle idlenet internal/verdict internal/outage internal/watch server"

func main() { os.Exit(run(os.Args[1:], reasons(survivors), os.Stdout)) }

func run(args []string, accepted map[string]string, stdout io.Writer) (code int) {
	flags := flag.NewFlagSet("sample", flag.ContinueOnError)
	flags.SetOutput(stdout)
	root := flags.String("root", "..", "the repository")
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()%1e6), "seed of the sample")
	n := flags.Int("n", 200, "number of changes")
	only := regexp.MustCompile("")
	flags.TextVar(only, "run", only, "regular expression; draw only changes with a matching file and description")
	in := flags.String("in", targets, "packages to change")
	with := flags.String("tests", "admin internal/connstate metrics settings", "further packages with tests")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	dir, err := os.MkdirTemp("", "sample")
	if err == nil {
		defer os.RemoveAll(dir)
		r := repository{root: *root, dir: dir}
		err = errors.Join(r.mutate(strings.Fields(*in)), r.measure(strings.Fields(*in+" "+*with)))
		if err == nil {
			return r.sample(only, *n, *seed, accepted, stdout)
		}
	}
	fmt.Fprintln(stdout, "sample:", err)
	return 2
}

// reasons returns why changes are accepted. The name of a change is on a line of its own, and its
// reason on the next, which is indented.
func reasons(text string) map[string]string {
	all, name := map[string]string{}, ""
	for line := range strings.Lines(text) {
		if reason, ok := strings.CutPrefix(line, "\t"); ok {
			all[name] = strings.TrimSpace(reason)
		}
		name = strings.TrimSpace(line)
	}
	return all
}

// A repository is compiled with all its changes, in a directory of its own.
type repository struct {
	root, dir string
	changes   []change
	tests     []*batch // single ones, sorted by their duration
	left      []string
}

// paths returns the patterns of packages.
func paths(packages []string) (patterns []string) {
	for _, pkg := range packages {
		patterns = append(patterns, "./"+pkg)
	}
	return patterns
}

// mutate writes the files of packages with all their changes, and the overlay that replaces them.
func (r *repository) mutate(packages []string) error {
	const format = "{{range .GoFiles}}{{$.Module.Path}} {{$.Module.Dir}} {{$.Dir}}/{{.}}\n{{end}}"
	list := exec.Command("go", append([]string{"-C", r.root, "list", "-f", format}, paths(packages)...)...)
	list.Stderr = os.Stderr
	files, err := list.Output()
	if err != nil {
		return err
	}
	sources := map[string]string{}
	for line := range slices.Chunk(strings.Fields(string(files)), 3) {
		module, base, file := line[0], line[1], line[2]
		sources[filepath.Join(base, "internal/mutant/mutant.go")] = string(mutantSource)
		sources[file], r.changes, err = mutate(file, strings.TrimPrefix(file, base+"/"), module+"/internal/mutant", r.changes)
		if err != nil {
			return err
		}
	}
	if len(r.changes) > mutant.Max {
		return fmt.Errorf("%d changes, at most %d", len(r.changes), mutant.Max)
	}
	replace := map[string]string{}
	for file, source := range sources {
		replace[file] = filepath.Join(r.dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(replace[file], []byte(source), 0o666); err != nil {
			return err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	return errors.Join(err, os.WriteFile(r.overlay(), b, 0o666))
}

func (r *repository) overlay() string { return filepath.Join(r.dir, "overlay.json") }

// measure compiles the tests of packages, and runs each test once. Those that fail are left out.
func (r *repository) measure(packages []string) error {
	args := []string{"-C", r.root, "test", "-c", "-vet=off", "-overlay", r.overlay(), "-o", r.dir + "/"}
	if out, err := exec.Command("go", append(args, paths(packages)...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	var all []*batch
	for _, pkg := range packages {
		b := batch{pkg: pkg, dir: filepath.Join(r.root, pkg), binary: filepath.Join(r.dir, filepath.Base(pkg)+".test")}
		list := exec.Command(b.binary, "-test.list", "^(Test|Example|Fuzz)")
		list.Dir = b.dir
		names, err := list.Output()
		if err != nil {
			return err
		}
		for _, name := range strings.Fields(string(names)) {
			test := b
			test.names = []string{name}
			all = append(all, &test)
		}
	}
	parallel(all, (*batch).measure)
	for _, t := range all {
		if t.reached == nil {
			r.left = append(r.left, t.pkg+"."+t.names[0])
		} else {
			r.tests = append(r.tests, t)
		}
	}
	slices.SortFunc(r.tests, func(a, b *batch) int { return int(a.took - b.took) })
	return nil
}

// sample tries some of the changes that match a regular expression, and prints their outcome.
func (r *repository) sample(only *regexp.Regexp, n int, seed uint64, accepted map[string]string, stdout io.Writer) (code int) {
	// The place of a change in the draw depends on its name, so other code may change.
	draw := func(i int) uint64 {
		sum := sha256.Sum256(fmt.Append(nil, seed, r.changes[i].name))
		return binary.BigEndian.Uint64(sum[:])
	}
	var some []int
	for i, c := range r.changes {
		if only.MatchString(c.name) {
			some = append(some, i)
		}
	}
	slices.SortFunc(some, func(a, b int) int { return cmp.Compare(draw(a), draw(b)) })
	some = some[:min(n, len(some))]
	fmt.Fprintf(stdout, "seed %d: %d of %d changes, %d tests; left out, as they fail without a change: %q\n",
		seed, len(some), len(r.changes), len(r.tests), r.left)
	results := map[string]map[string]int{"all": {}}
	var mu sync.Mutex
	parallel(some, func(i int) {
		began, c, outcome := time.Now(), r.changes[i], "accepted"
		by := accepted[c.name]
		if by == "" {
			outcome = "SURVIVED"
			if by = killer(batches(r.tests, i, c), i); by != "" {
				outcome = "killed"
			}
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(stdout, "%-8s %s (line %d): %.1f s %s\n", outcome, c.name, c.line, time.Since(began).Seconds(), by)
		pkg := filepath.Dir(c.file)
		if results[pkg] == nil {
			results[pkg] = map[string]int{}
		}
		results[pkg][outcome]++
		results["all"][outcome]++
	})
	fmt.Fprintln(stdout, results)
	return min(results["all"]["SURVIVED"], 1)
}

// parallel calls f with each element. Tests wait most of the time.
func parallel[E any](all []E, f func(E)) {
	var calls errgroup.Group
	calls.SetLimit(2 * runtime.NumCPU())
	for _, e := range all {
		calls.Go(func() error { f(e); return nil })
	}
	_ = calls.Wait()
}
