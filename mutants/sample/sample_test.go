package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOnlyDetectedChangesAreKilled changes a package with a test that detects some of the changes.
func TestOnlyDetectedChangesAreKilled(t *testing.T) {
	root := t.TempDir()
	for file, text := range map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.25\n",
		"p/p.go": "package p\n\nvar n int\n\nfunc f(a, b bool) (int, error) {\n\tn++\n\tn = 0\n\tif a || b {\n\t\treturn 1, nil\n\t}\n\treturn 0, nil\n}\n",
		"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {\n\tn = 1\n" +
			"\tif k, _ := f(true, false); n != 0 || k != 1 {\n\t\tt.Fatal()\n\t}\n}\n\nfunc TestG(t *testing.T) { t.Fatal() }\n",
	} {
		if err := os.MkdirAll(filepath.Join(root, "p"), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	accepted := reasons("p/p.go: f: without n++\n\tthe next statement replaces it\n")
	var out strings.Builder
	code := run([]string{"-root", root, "-in", "p", "-tests", ""}, accepted, &out)
	for _, want := range []string{
		": 7 of 7 changes, 1 tests; left out, as they fail without a change: [\"p.TestG\"]",
		"accepted p/p.go: f: without n++ (line 6)", "the next statement replaces it",
		"killed   p/p.go: f: without n = 0 (line 7)", "killed   p/p.go: f: false instead of a (line 8)", "killed   p/p.go: f: zero instead of return 1, nil (line 9)",
		"SURVIVED p/p.go: f: true instead of a ", "SURVIVED p/p.go: f: true instead of b ", "SURVIVED p/p.go: f: false instead of b ",
	} {
		if code != 1 || !strings.Contains(out.String(), want) {
			t.Errorf("exit code %d, no %q:\n%s", code, want, &out)
		}
	}
}

// TestEachSurvivorIsAChangeOfTheCode finds reasons for changes that no longer exist.
func TestEachSurvivorIsAChangeOfTheCode(t *testing.T) {
	changes := map[string]bool{}
	r := repository{root: "../..", dir: t.TempDir()}
	if err := r.mutate(strings.Fields(targets)); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.changes {
		changes[c.name] = true
	}
	for name, reason := range reasons(survivors) {
		if !changes[name] || reason == "" {
			t.Errorf("%s: no such change, or no reason", name)
		}
	}
}
