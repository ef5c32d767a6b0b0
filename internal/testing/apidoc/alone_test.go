package apidoc_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var exampleFile = regexp.MustCompile(`^example\w*_test\.go$`)

// TestExamplesStandAlone compiles each example as pkg.go.dev shows it: a program of the example and
// of the declarations in its file that it uses. An example that needs another file has none.
func TestExamplesStandAlone(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	dir := t.TempDir()
	var packages []string
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != root && isOther(path):
			return fs.SkipDir
		case !exampleFile.MatchString(e.Name()):
			return nil
		}
		for name, program := range programs(t, path) {
			pkg := fmt.Sprintf("internal/apidoc/alone/example%d", len(packages))
			packages = append(packages, "./"+pkg)
			file := filepath.Join(dir, filepath.Base(pkg)+".go")
			overlay.Replace[filepath.Join(root, filepath.FromSlash(pkg), "main"+system(path)+".go")] = file
			program = fmt.Appendf(nil, "//line %s(%s):1\n%s", path, name, program)
			require.NoError(t, os.WriteFile(file, program, 0o600))
		}
		return nil
	}))
	require.Greater(t, len(packages), 40)

	list := filepath.Join(dir, "overlay.json")
	b, err := json.Marshal(overlay)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(list, b, 0o600))
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-overlay", list}, packages...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// programs returns the programs of the examples in a file, by name.
func programs(t *testing.T, path string) map[string][]byte {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	require.NoError(t, err)
	list := map[string][]byte{}
	for _, example := range doc.Examples(f) {
		if example.Play == nil {
			t.Errorf("%s: Example%s needs another file", path, example.Name)
			continue
		}
		var b bytes.Buffer
		require.NoError(t, format.Node(&b, files, example.Play))
		// As a library it is compiled and not linked.
		list["Example"+example.Name] = bytes.Replace(b.Bytes(), []byte("package main\n"), []byte("package alone\n"), 1)
	}
	return list
}

// isOther reports whether a folder is another module or that of Git.
func isOther(path string) bool {
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil || filepath.Base(path) == ".git"
}

// system returns the suffix of a file name that restricts it to a system, such as _linux.
func system(path string) string {
	name, _ := strings.CutSuffix(path, "_test.go")
	if strings.HasSuffix(name, "_linux") {
		return "_linux"
	}
	return ""
}

// TestAnExampleThatNeedsAnotherFileIsFound checks that go/doc makes no program of such an example.
func TestAnExampleThatNeedsAnotherFileIsFound(t *testing.T) {
	for helper, alone := range map[string]bool{"": false, "\nfunc help() {}\n": true} {
		f, err := parser.ParseFile(token.NewFileSet(), "x_test.go", "package x_test\n\nfunc Example() { help() }\n"+helper, parser.ParseComments)
		require.NoError(t, err)
		examples := doc.Examples(f)
		require.Len(t, examples, 1)
		require.Equal(t, alone, examples[0].Play != nil)
	}
}
