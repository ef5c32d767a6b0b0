package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const maxMapLines = 90

var (
	placePattern  = regexp.MustCompile(`\]\(([^)]+)\)([^\[]*)`) // with the text up to the next link
	drawnPattern  = regexp.MustCompile(`\b[A-Za-z]\w*\.[A-Za-z]\w*\b`)
	goFilePattern = regexp.MustCompile(`[\w/]+\.go\b`)
)

// declare adds the names that a file of Go declares: name, Type.member, and package.name.
func declare(t testing.TB, known map[string]bool, path string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	add := func(name string) { known[name], known[f.Name.Name+"."+name] = true, true }
	for _, d := range f.Decls {
		if d, isFunc := d.(*ast.FuncDecl); isFunc {
			add(funcName(d))
			continue
		}
		of := ""
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncType: // its fields are parameters
				return false
			case *ast.TypeSpec:
				of = n.Name.Name
				add(of)
			case *ast.ValueSpec:
				for _, name := range n.Names {
					add(name.Name)
				}
			case *ast.Field:
				for _, name := range n.Names {
					known[of+"."+name.Name] = true
				}
			}
			return true
		})
	}
}

// funcName returns the name of a function: f or T.m.
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	of, _, _ := strings.Cut(types.ExprString(d.Recv.List[0].Type), "[")
	return strings.TrimPrefix(of, "*") + "." + d.Name.Name
}

// wrongPlaces returns what is wrong with the places in a row of the map.
func wrongPlaces(t testing.TB, row string) (list []string) {
	t.Helper()
	places := placePattern.FindAllStringSubmatch(row, -1)
	if len(places) == 0 && strings.Contains(row, "`") {
		list = append(list, "no link")
	}
	for _, m := range places {
		path := filepath.Join(root, "internal", filepath.FromSlash(m[1]))
		names, known := spanPattern.FindAllStringSubmatch(m[2], -1), map[string]bool{}
		text, err := os.ReadFile(path)
		switch isGo := strings.HasSuffix(path, ".go"); {
		case isGo && (err != nil || len(names) == 0):
			list = append(list, "no file, or no name in "+m[1])
			continue
		case isGo:
			declare(t, known, path)
		}
		for _, n := range names {
			if name := n[1]; !known[name] && (len(known) > 0 || !strings.Contains(string(text), name)) {
				list = append(list, "no "+name+" in "+m[1])
			}
		}
	}
	return list
}

// TestTheMapIsTrue looks up the names of internal/README.md: those of a row in its files, and those
// of the picture in the files that it names. TestLinksResolve finds the other files.
func TestTheMapIsTrue(t *testing.T) {
	d := readDocument(t, filepath.Join(root, "internal", "README.md"))
	n := len(d.lines) - 1
	assert.LessOrEqual(t, n, maxMapLines, "%s has %d lines, want at most %d", d.path, n, maxMapLines)
	known, drawn := map[string]bool{}, map[string]int{}
	for i, line := range d.lines {
		switch {
		case strings.HasPrefix(line, "|"):
			for _, why := range wrongPlaces(t, line) {
				t.Errorf("%s:%d: %s", d.path, i+1, why)
			}
		case strings.HasPrefix(line, "    "):
			for _, file := range goFilePattern.FindAllString(line, -1) {
				declare(t, known, filepath.Join(root, filepath.FromSlash(file)))
			}
			for _, name := range drawnPattern.FindAllString(goFilePattern.ReplaceAllString(line, ""), -1) {
				drawn[name] = i + 1
			}
		}
	}
	for name, line := range drawn {
		assert.True(t, known[name], "%s:%d: no file of the picture declares %s", d.path, line, name)
	}
}

func TestWrongPlacesAreFound(t *testing.T) {
	const idle = "| a | [idle/reaper.go](../idle/reaper.go)"
	for row, want := range map[string]string{
		idle + " `Reaper.OnOpen`, `Middleware`; [b](../Makefile) `lint`, [c](../docs/metrics.md) |": "[]",

		idle + " [b](x.go) `b` |":                  "[no file, or no name in ../idle/reaper.go no file, or no name in x.go]",
		idle + " `Reaper.Inspect` |":               "[no Reaper.Inspect in ../idle/reaper.go]",
		"| a | [b](../Makefile) `lint`, `lunch` |": "[no lunch in ../Makefile]",
		"| a | idle/reaper.go `Reaper` |":          "[no link]",
	} {
		got := fmt.Sprint(wrongPlaces(t, row))
		assert.Equal(t, want, got, "%s: got %s, want %s", row, got, want)
	}
}

// TestTestsOfIdleAreNamedAfterFiles checks what the last row of the map says.
func TestTestsOfIdleAreNamedAfterFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "idle", "*_test.go"))
	require.False(t, err != nil || len(files) == 0, err)
	for _, f := range files {
		name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(f), "_test.go"), "_linux")
		subject, _, _ := strings.Cut(name, "_")
		switch _, err := os.Stat(filepath.Join(filepath.Dir(f), subject+".go")); {
		case err == nil, strings.HasSuffix(name, "_helper"), strings.Contains(" bench example main sim ", " "+subject+" "):
		default:
			t.Errorf("%s is named after no file of package idle", f)
		}
	}
}
