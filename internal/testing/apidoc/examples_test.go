package apidoc_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
			if strings.TrimSpace(text) == "" {
				t.Errorf("%s.%s has no doc comment", lib.Name, name)
			}
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
