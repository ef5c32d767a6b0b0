package apidoc_test

import (
	"go/ast"
	"go/doc"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
