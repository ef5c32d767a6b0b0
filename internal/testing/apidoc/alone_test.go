package apidoc_test

import (
	"bytes"
	"fmt"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"go/version"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/typecheck"
)

var exampleFile = regexp.MustCompile(`^example\w*_test\.go$`)

// TestExamplesStandAlone checks each example as pkg.go.dev shows it: a program of the example and
// of the declarations in its file that it uses. An example that needs another file has none.
func TestExamplesStandAlone(t *testing.T) {
	if version.Compare(runtime.Version(), "go1.26") < 0 {
		t.Skip("needs go/doc of Go 1.26: before, it takes v2 for the name of a package")
	}
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	var names []string
	var all []typecheck.Program
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != root && isOther(path):
			return fs.SkipDir
		case !exampleFile.MatchString(e.Name()) || isForeign(path):
			return nil
		}
		for name, source := range programs(t, path) {
			names = append(names, name)
			all = append(all, typecheck.Program{Source: fmt.Sprintf("//line %s(%s):1\n%s", path, name, source)})
		}
		return nil
	}))
	require.Greater(t, len(all), 40)
	for i, err := range typecheck.Check(t, all) {
		assert.NoError(t, err, names[i])
	}
}

// programs returns the programs of the examples in a file, by name.
func programs(t *testing.T, path string) map[string]string {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	require.NoError(t, err)
	list := map[string]string{}
	for _, example := range doc.Examples(f) {
		if example.Play == nil {
			t.Errorf("%s: Example%s needs another file", path, example.Name)
			continue
		}
		var b bytes.Buffer
		require.NoError(t, format.Node(&b, files, example.Play))
		list["Example"+example.Name] = b.String()
	}
	return list
}

// isOther reports whether a folder is another module or that of Git.
func isOther(path string) bool {
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil || filepath.Base(path) == ".git"
}

// isForeign reports whether a file is for Linux and this system is another one.
func isForeign(path string) bool {
	return strings.HasSuffix(path, "_linux_test.go") && runtime.GOOS != "linux"
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
