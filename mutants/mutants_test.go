package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	got, err := parse("# a comment\n\n@@ a/b.go: the first: with a colon\nold 1\n\told 2\n=====\nnew\n# a comment\n\n@@ c.go: nothing in its place\nold\n=====\n")
	want := []mutant{
		{"a/b.go", "the first: with a colon", "old 1\n\told 2", "new"},
		{"c.go", "nothing in its place", "old", ""},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{
		"text", "@@ a.go\nold\n=====\nnew", "@@ a.go: no separator\nold", "@@ a.go: no old text\n=====\nnew", "@@ a.go: the same\nold\n=====\nold",
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func TestTheOldTextMustOccurOnce(t *testing.T) {
	m := mutant{"a.go", "a fault", "x", "y"}
	for source, want := range map[string]error{"abc": errNotFound, "axbxc": errTwice, "axc": nil} {
		got, err := m.apply(source)
		if !errors.Is(err, want) || want == nil && got != "ayc" {
			t.Errorf("%q: got %q, %v, want %v", source, got, err, want)
		}
	}
}

// TestEachMutantIsAChangeOfTheCode finds mutants that no longer match the code.
func TestEachMutantIsAChangeOfTheCode(t *testing.T) {
	list, err := os.ReadFile("mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, err := parse(string(list))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		source, err := os.ReadFile(filepath.Join("..", m.file))
		if err == nil {
			_, err = m.apply(string(source))
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func TestTestsForAMutant(t *testing.T) {
	const short, long = "go test -short -failfast -count=1 -timeout 1m0s ", "go test -count=1 -timeout 1m0s "
	const skip, simulation = " -skip ^TestSimulation$", " -run ^TestSimulation$"
	c := &workCopy{timeout: time.Minute, sources: map[string]string{
		"idle/sim_world_test.go": "func TestSimulation(", "idlenet/sim_world_test.go": "func TestSimulation(", "loadtest/internal/truth/doc.go": "",
	}}
	own := short + "{package}"
	for file, want := range map[string][]string{
		"wheel/wheel.go":         {own, long + "./idle" + simulation},
		"idle/loop.go":           {own, long + "./idle" + simulation},
		"idlenet/shard.go":       {own, long + "./idlenet" + simulation},
		"loadtest/echo_linux.go": {own, short + "./loadtest/internal/truth"},
		"internal/watch/look.go": {
			own, long + "./idle" + simulation, long + "./idlenet" + simulation, short + "./idle" + skip, short + "./idlenet" + skip,
		},
	} {
		if got := c.testsFor(mutant{file: file}); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
	c.tests = []string{"true"}
	if got := c.testsFor(mutant{file: "idle/loop.go"}); !slices.Equal(got, c.tests) {
		t.Errorf("got %q", got)
	}
}

// TestExitCodes runs the command on a repository of one package with a test that detects one of two
// faults.
func TestExitCodes(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles several packages")
	}
	root := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(root, name)
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("go.mod", "module example.org/m\n\ngo 1.26\n")
	source := write("m.go", "package m\n\nfunc one() int { return 1 }\n\nfunc two() int { return 2 }\n")
	write("m_test.go", "package m\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\t_ = two()\n\tif one() != 1 {\n\t\tt.Fatal()\n\t}\n}\n")
	if out, err := exec.Command("git", "init", "-q", root).CombinedOutput(); err != nil {
		t.Skipf("git: %v: %s", err, out)
	}
	const noticed, missed = "@@ m.go: one\nreturn 1\n=====\nreturn 3\n", "@@ m.go: two\nreturn 2\n=====\nreturn 3\n"
	for _, tc := range []struct {
		name, list string
		args       []string
		code       int
		out        string
	}{
		{"all killed", noticed, nil, exitOK, "1 of 1 mutants killed: 100.0 %"},
		{"one survives", noticed + missed, nil, exitSurvivors, "SURVIVED m.go: two"},
		{"one may survive", noticed + missed, []string{"-least", "50"}, exitOK, "50.0 %"},
		{"only one", noticed + missed, []string{"-run", "one"}, exitOK, "1 of 1"},
		{"it does not compile", "@@ m.go: one\nreturn 1\n=====\nreturn \"\"\n", nil, exitError, "does not compile"},
		{"it occurs twice", "@@ m.go: one\nreturn\n=====\n_ =\n", nil, exitError, errTwice.Error()},
		{"no such file", "@@ n.go: one\nreturn\n=====\n_ =\n", nil, exitError, "no such file"},
		{"the tests fail anyway", noticed, []string{"-test", "go vet ./missing"}, exitError, "without a change"},
		{"no such flag", noticed, []string{"-flag"}, exitError, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			args := append([]string{"-root", root, "-list", write("list", tc.list)}, tc.args...)
			if code := run(args, &out, &out); code != tc.code || !strings.Contains(out.String(), tc.out) {
				t.Errorf("exit code %d, want %d:\n%s", code, tc.code, &out)
			}
			if b, err := os.ReadFile(source); err != nil || !bytes.Contains(b, []byte("return 1")) {
				t.Errorf("the working tree has changed: %s, %v", b, err)
			}
		})
	}
}
