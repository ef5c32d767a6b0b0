package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"runtime"
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
	for source, want := range map[string]string{"abc": "occurs 0 times", "axbxc": "occurs 2 times", "axc": "<nil>"} {
		got, err := m.apply(source)
		if !strings.Contains(fmt.Sprint(err), want) || err == nil && got != "ayc" {
			t.Errorf("%q: got %q, %v, want %s", source, got, err, want)
		}
	}
}

// TestEachMutantIsAChangeOfTheCode finds mutants that no longer match the code, or do not compile.
func TestEachMutantIsAChangeOfTheCode(t *testing.T) {
	list, err := os.ReadFile("mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, err := parse(string(list))
	if err != nil {
		t.Fatal(err)
	}
	packages := compiled(t)
	for _, m := range all {
		_, changed, err := m.mutate("..")
		if err == nil {
			err = packages.check(m.file, changed)
		}
		if err != nil {
			t.Errorf("%v: %v", m, err)
		}
	}
}

// sources has the files of packages, and the types of all that they import.
type sources struct {
	set    *token.FileSet
	types  types.Importer
	folder map[string][]*ast.File
}

// compiled returns the packages of the repository.
func compiled(t *testing.T) *sources {
	cmd := exec.Command("go", "list", "-export", "-deps", "-f",
		"{{.ImportPath}}\t{{.Export}}\t{{if and .Module .Module.Main}}{{.Dir}}{{end}}\t{{join .GoFiles \" \"}}", "./...")
	cmd.Dir, cmd.Stderr = "..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	s, exports := &sources{set: token.NewFileSet(), folder: map[string][]*ast.File{}}, map[string]string{}
	s.types = importer.ForCompiler(s.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		exports[fields[0]] = fields[1]
		if fields[2] == "" {
			continue
		}
		folder := strings.TrimPrefix(strings.TrimPrefix(fields[2], root), "/")
		for _, name := range strings.Fields(fields[3]) {
			file, err := parser.ParseFile(s.set, filepath.Join(fields[2], name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			s.folder[folder] = append(s.folder[folder], file)
		}
	}
	return s
}

// check compiles the package of a file with another text in its place.
func (s *sources) check(name, text string) error {
	changed, err := parser.ParseFile(s.set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	files := slices.Clone(s.folder[path.Dir(name)])
	for i, f := range files {
		if path.Base(s.set.File(f.Pos()).Name()) == path.Base(name) {
			files[i] = changed
		}
	}
	cfg := types.Config{Importer: s.types, Sizes: types.SizesFor("gc", runtime.GOARCH)}
	_, err = cfg.Check(path.Dir(name), s.set, files, nil)
	return err
}

func TestTestsForAMutant(t *testing.T) {
	const short, long = "go test -short -failfast -count=1 -timeout 1m0s ", "go test -count=1 -timeout 1m0s "
	const skip, simulation = " -skip ^TestSimulation$", " -run ^TestSimulation$"
	c := &workCopy{timeout: time.Minute}
	for file, want := range map[string][]string{
		"wheel/wheel.go":         {long + "./idle" + simulation},
		"idle/loop.go":           {long + "./idle" + simulation},
		"idlenet/shard.go":       {long + "./idlenet" + simulation},
		"loadtest/echo_linux.go": {short + "./loadtest/internal/truth"},
		"internal/watch/look.go": {long + "./idle" + simulation, long + "./idlenet" + simulation, short + "./idle" + skip, short + "./idlenet" + skip},
	} {
		want = append([]string{short + "./" + path.Dir(file)}, want...)
		if got := c.testsFor(mutant{file: file}); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
	c.tests = []string{"go vet {package}"}
	if got := c.testsFor(mutant{file: "idle/loop.go"}); !slices.Equal(got, []string{"go vet ./idle"}) {
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
	const noticed, missed = "@@ m.go: one\nreturn 1\n=====\nreturn 3\n", "@@ m.go: two\nreturn 2\n=====\nreturn 3\n"
	for _, tc := range []struct {
		name, list string
		args       []string
		code       int
		out        string
	}{
		{"all killed", noticed, nil, 0, "1 of 1 mutants killed: 100.0 %"},
		{"one survives", noticed + missed, nil, 1, "SURVIVED m.go: two"},
		{"one may survive", noticed + missed, []string{"-least", "50"}, 0, "50.0 %"},
		{"only one", noticed + missed, []string{"-run", "one"}, 0, "1 of 1"},
		{"it does not compile", "@@ m.go: one\nreturn 1\n=====\nreturn \"\"\n", nil, 2, "does not compile"},
		{"it occurs twice", "@@ m.go: one\nreturn\n=====\n_ =\n", nil, 2, "occurs 2 times"},
		{"no such file", "@@ n.go: one\nreturn\n=====\n_ =\n", nil, 2, "no such file"},
		{"the tests fail anyway", noticed, []string{"-test", "go vet ./missing"}, 2, "without a change"},
		{"no such flag", noticed, []string{"-flag"}, 2, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out bytes.Buffer
			args := append([]string{"-root", root, "-list", write("list", tc.list), "-test", "go test {package}"}, tc.args...)
			if code := run(args, &out, &out); code != tc.code || !strings.Contains(out.String(), tc.out) {
				t.Errorf("exit code %d, want %d:\n%s", code, tc.code, &out)
			}
			if b, err := os.ReadFile(source); err != nil || !bytes.Contains(b, []byte("return 1")) {
				t.Errorf("the working tree has changed: %s, %v", b, err)
			}
		})
	}
}
