package apidoc_test

import (
	"bytes"
	"fmt"
	"go/ast"
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

// packages are the folders of the packages that users import. A missing folder is skipped.
var packages = []string{"wheel", "timer", "idle", "idlenet", "metrics", "admin", "server"}

// A library is the documentation of a package with its examples.
type library struct {
	*doc.Package
	examples map[string]bool // by name, without the prefix Example
}

func forEach(t *testing.T, check func(*testing.T, library)) {
	for _, dir := range packages {
		t.Run(dir, func(t *testing.T) {
			path := filepath.Join("..", "..", "..", dir)
			if _, err := os.Stat(path); os.IsNotExist(err) {
				t.Skip("there is no such package")
			}
			check(t, load(t, path))
		})
	}
}

func load(t *testing.T, dir string) library {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	var code, tests []*ast.File
	fset := token.NewFileSet()
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		if strings.HasSuffix(name, "_test.go") {
			tests = append(tests, f)
		} else {
			code = append(code, f)
		}
	}
	pkg, err := doc.NewFromFiles(fset, code, "example.org/"+filepath.Base(dir))
	require.NoError(t, err)
	lib := library{pkg, map[string]bool{}}
	for _, example := range doc.Examples(tests...) {
		lib.examples[example.Name] = true
	}
	return lib
}

// TestEveryEntryPointHasAnExample requires an example of each exported function, and of each type
// that the package constructs and that has methods. A type and its constructors count as one.
func TestEveryEntryPointHasAnExample(t *testing.T) {
	forEach(t, func(t *testing.T, lib library) {
		for _, f := range lib.Funcs {
			lib.requireExample(t, f.Name)
		}
		for _, typ := range lib.Types {
			made := []string{typ.Name}
			for _, m := range typ.Methods {
				made = append(made, typ.Name+"_"+m.Name)
			}
			for _, f := range typ.Funcs {
				made = append(made, f.Name)
				if !strings.HasPrefix(f.Name, "New") {
					lib.requireExample(t, f.Name)
				}
			}
			if isOpaque(typ) && len(typ.Methods) > 0 || len(typ.Funcs) > 0 {
				lib.requireExample(t, made...)
			}
		}
	})
}

// requireExample requires an example of at least one of the names. An error proposes the first.
func (lib library) requireExample(t *testing.T, names ...string) {
	t.Helper()
	for example := range lib.examples {
		for _, name := range names {
			variant, ok := strings.CutPrefix(example, name+"_")
			if example == name || ok && !ast.IsExported(variant) {
				return
			}
		}
	}
	t.Errorf("%s.%s has no example: write Example%s", lib.Name, names[0], names[0])
}

// isOpaque reports whether a type is a struct without exported fields.
func isOpaque(typ *doc.Type) bool {
	for _, spec := range typ.Decl.Specs {
		if s, ok := spec.(*ast.TypeSpec).Type.(*ast.StructType); ok {
			return len(s.Fields.List) == 0 // go/doc removes unexported fields
		}
	}
	return false
}

// TestEveryExportedNameHasADocComment leaves out fields and Error methods.
func TestEveryExportedNameHasADocComment(t *testing.T) {
	forEach(t, func(t *testing.T, lib library) {
		wantDoc := func(name, text string) {
			assert.NotEmpty(t, strings.TrimSpace(text), "%s.%s has no doc comment", lib.Name, name)
		}
		values := func(all []*doc.Value) {
			for _, v := range all {
				if v.Doc != "" {
					continue // the comment is about the whole group
				}
				for _, spec := range v.Decl.Specs {
					if s := spec.(*ast.ValueSpec); s.Names[0].IsExported() {
						wantDoc(s.Names[0].Name, s.Doc.Text()+s.Comment.Text())
					}
				}
			}
		}
		funcs := func(of string, all []*doc.Func) {
			for _, f := range all {
				if f.Name != "Error" {
					wantDoc(of+f.Name, f.Doc)
				}
			}
		}
		wantDoc("package comment", lib.Doc)
		values(lib.Consts)
		values(lib.Vars)
		funcs("", lib.Funcs)
		for _, typ := range lib.Types {
			wantDoc(typ.Name, typ.Doc)
			values(typ.Consts)
			values(typ.Vars)
			funcs("", typ.Funcs)
			funcs(typ.Name+".", typ.Methods)
		}
	})
}

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
		case !exampleFile.MatchString(e.Name()), strings.HasSuffix(path, "_linux_test.go") && runtime.GOOS != "linux":
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

const (
	maxIdleNames = 75 // exported names of package idle, methods included
	maxFiles     = 20 // files of a package, without tests
)

// exported returns the exported names of a package. A method counts under its type.
func (lib library) exported() (names []string) {
	add := func(name string) {
		if ast.IsExported(name) {
			names = append(names, name)
		}
	}
	addAll := func(values []*doc.Value, funcs []*doc.Func) {
		for _, v := range values {
			for _, name := range v.Names {
				add(name)
			}
		}
		for _, f := range funcs {
			add(f.Name)
		}
	}
	addAll(lib.Consts, lib.Funcs)
	addAll(lib.Vars, nil)
	for _, typ := range lib.Types {
		add(typ.Name)
		addAll(typ.Consts, typ.Funcs)
		addAll(typ.Vars, typ.Methods)
	}
	return names
}

func TestPackageIdleHasFewNames(t *testing.T) {
	names := load(t, filepath.Join("..", "..", "..", "idle")).exported()
	require.LessOrEqual(t, len(names), maxIdleNames, "exported names of idle:\n%s", strings.Join(names, "\n"))
}

func TestPackagesHaveFewFiles(t *testing.T) {
	files := map[string]int{} // by folder
	require.NoError(t, filepath.WalkDir(filepath.Join("..", "..", ".."), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go") {
			files[filepath.Dir(path)]++
		}
		return err
	}))
	require.Greater(t, len(files), 10)
	for folder, n := range files {
		require.LessOrEqual(t, n, maxFiles, "files in %s", folder)
	}
}
