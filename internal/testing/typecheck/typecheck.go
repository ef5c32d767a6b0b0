// Package typecheck checks Go programs of documents and examples as the compiler does, without a
// run of the compiler for each of them.
package typecheck

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A Program is a Go file, which is a package of its own. Positions in errors are those of its line
// directives.
type Program struct {
	Source string
	file   *ast.File
}

// Check returns the errors of each program, nil for a correct one. The programs may import what the
// root module can.
func Check(t testing.TB, programs []Program) []error {
	t.Helper()
	files, errs := token.NewFileSet(), make([]error, len(programs))
	// A package of this module has the language version.
	imports := map[string]bool{"github.com/idlewheel/idlewheel/reap": true}
	for i := range programs {
		p := &programs[i]
		if p.file, errs[i] = parser.ParseFile(files, "", p.Source, parser.SkipObjectResolution); errs[i] != nil {
			continue
		}
		for _, spec := range p.file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			imports[path] = true
		}
	}
	exports, version := list(t, slices.Sorted(maps.Keys(imports)))
	cfg := types.Config{
		GoVersion: version, Sizes: types.SizesFor("gc", runtime.GOARCH),
		Importer: importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }),
	}
	for i, p := range programs {
		if errs[i] == nil {
			errs[i] = p.check(cfg, files)
		}
	}
	return errs
}

func (p Program) check(cfg types.Config, files *token.FileSet) error {
	var errs []error
	cfg.Error = func(err error) { errs = append(errs, err) }
	pkg, _ := cfg.Check("p", files, []*ast.File{p.file}, nil) // Error gets the errors
	if pkg.Name() == "main" && pkg.Scope().Lookup("main") == nil {
		errs = append(errs, fmt.Errorf("%s: function main is undeclared in the main package", files.Position(p.file.Pos())))
	}
	return errors.Join(errs...)
}

// list returns the files with the types of packages and of all that they import, and the language
// version of this module, such as go1.25.
func list(t testing.TB, paths []string) (exports map[string]string, version string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-e",
		"-f", "{{.ImportPath}}\t{{.Export}}\t{{with .Module}}{{if .Main}}{{.GoVersion}}{{end}}{{end}}"}, paths...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &errs)
	}
	exports = map[string]string{}
	for line := range strings.Lines(string(out)) {
		field := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		exports[field[0]] = field[1]
		if field[2] != "" {
			version = "go" + field[2]
		}
	}
	return exports, version
}
