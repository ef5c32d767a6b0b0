package docs_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/typecheck"
)

// imports are the packages that a block may use without an import, by their names.
var imports = map[string]string{
	"gnet":       "github.com/panjf2000/gnet/v2",
	"prometheus": "github.com/prometheus/client_golang/prometheus",
}

func init() {
	for _, p := range []string{"admin", "idle", "idlenet", "metrics", "reap", "server", "settings", "sourcelimit", "timer", "wheel"} {
		imports[p] = modulePath + "/" + p
	}
	for _, p := range []string{"bufio", "bytes", "context", "crypto/tls", "errors", "flag", "fmt", "io", "log", "log/slog", "math", "net", "net/http",
		"net/netip", "os", "os/signal", "strconv", "strings", "sync", "sync/atomic", "syscall", "testing", "time"} {
		imports[p[strings.LastIndex(p, "/")+1:]] = p
	}
}

// TestGoBlocksCompile checks the programs of all documents. A block with the mark "go fragment" is
// left out.
func TestGoBlocksCompile(t *testing.T) {
	var programs []typecheck.Program
	for _, d := range documents(t) {
		sources, err := sourcesOf(d)
		require.NoError(t, err)
		for _, source := range sources {
			programs = append(programs, typecheck.Program{Source: source})
		}
	}
	if err := errors.Join(typecheck.Check(t, programs)...); err != nil {
		t.Errorf("%v\nThe names above are lines of documents.", err)
	}
}

// sourcesOf returns the programs of a document. A block with a package clause is a program of its
// own. All other Go blocks are one package: declarations are copied, and a block of statements
// becomes a function. The tutorial has a program for each of its steps.
func sourcesOf(d document) (sources []string, err error) {
	_, blocks := d.split()
	if d.path == tutorial {
		steps, err := stepsOf(d.path, blocks)
		for _, step := range steps {
			sources = append(sources, source(d.path, step))
		}
		return sources, err
	}
	var rest []block
	for _, b := range blocks {
		if b.info == "go" && strings.HasPrefix(b.text, "package ") {
			sources = append(sources, fmt.Sprintf("//line %s:%d\n%s", d.path, b.line, b.text))
		} else {
			rest = append(rest, b)
		}
	}
	source, err := packageOf(d.path, rest)
	if source != "" {
		sources = append(sources, source)
	}
	return sources, err
}

// packageOf returns a Go file with the blocks of a document, "" if they have no Go.
func packageOf(path string, blocks []block) (string, error) {
	var body strings.Builder
	name := "snippets"
	for _, b := range blocks {
		if b.info != "go" {
			continue
		}
		text := b.text
		if _, err := parse(text); err != nil {
			text = "func _() error {\n//line " + fmt.Sprintf("%s:%d\n", path, b.line) + text + "\nreturn nil\n}\n"
			if _, wrapped := parse(text); wrapped != nil {
				return "", fmt.Errorf("%s:%d is not Go: %w", path, b.line, err)
			}
		}
		if strings.Contains(text, "\nfunc main()") || strings.HasPrefix(text, "func main()") {
			name = "main"
		}
		fmt.Fprintf(&body, "//line %s:%d\n%s\n", path, b.line, text)
	}
	if body.Len() == 0 {
		return "", nil
	}
	f, err := parse(body.String())
	if err != nil {
		return "", err
	}
	used := map[string]bool{}
	for _, id := range f.Unresolved {
		if p := imports[id.Name]; p != "" {
			used[p] = true
		}
	}
	var head strings.Builder
	fmt.Fprintf(&head, "package %s\n", name)
	for _, p := range slices.Sorted(maps.Keys(used)) {
		fmt.Fprintf(&head, "import %q\n", p)
	}
	return head.String() + body.String(), nil
}

func parse(declarations string) (*ast.File, error) {
	return parser.ParseFile(token.NewFileSet(), "", "package p\n"+declarations, 0)
}

func TestMistakesAreFound(t *testing.T) {
	var wanted []string
	var programs []typecheck.Program
	for text, want := range map[string]string{
		"var _ = idle.Config{ReadTimeout: time.Second}\n":   "",
		"cfg := idle.Config{}\nreturn cfg.Nonsense\n":       "Nonsense",
		"var _ = idle.Config{ReadTimeout: \"ten\"}\n":       "Duration value",
		"func f(c gnet.Conn) { c.Write() }\nfunc main() {}": "not enough arguments",
		"x := 1\n": "declared and not used",
	} {
		source, err := packageOf("x.md", []block{{info: "go", line: 7, text: text}})
		require.NoError(t, err)
		programs, wanted = append(programs, typecheck.Program{Source: source}), append(wanted, want)
	}
	for text, want := range map[string]string{
		"package main": "function main is undeclared", "package p\n\nimport \"os\"\n": "imported and not used",
		"package p\n\nimport _ \"example.invalid\"\n": "could not import", "package p {": "expected ';'",
	} {
		programs, wanted = append(programs, typecheck.Program{Source: "//line x.md:7\n" + text}), append(wanted, want)
	}
	for i, err := range typecheck.Check(t, programs) {
		want := wanted[i]
		if (err == nil) != (want == "") || want != "" && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "x.md:")) {
			t.Errorf("%q: %v; want %q at a line of x.md", programs[i].Source, err, want)
		}
	}
	_, err := packageOf("x.md", []block{{info: "go", line: 7, text: "func {"}})
	assert.Error(t, err, "a block that is not Go is accepted")
}

// programs returns the paths of the programs of examples/. It fails the test if there is none.
func programs(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "examples", "*", "main.go"))
	require.False(t, err != nil || len(paths) == 0, "%d programs, %v", len(paths), err)
	return paths
}

// TestEachRecipeHasAProgram compares the programs in docs/recipes.md with the folders of examples/.
func TestEachRecipeHasAProgram(t *testing.T) {
	var want, named []string
	for _, path := range programs(t) {
		want = append(want, filepath.Base(filepath.Dir(path)))
	}
	for _, m := range regexp.MustCompile("`go -C examples run ./([a-z-]+)`").FindAllStringSubmatch(readText(t, "docs", "recipes.md"), -1) {
		named = append(named, m[1])
	}
	slices.Sort(named)
	assert.Equal(t, want, slices.Compact(named))
}

// TestProgramsOfRecipesAreShort checks the promise of examples/README.md about each main.go.
func TestProgramsOfRecipesAreShort(t *testing.T) {
	const limit = 150
	paths := programs(t)
	promise := fmt.Sprintf("`main.go` has fewer than %d lines", limit)
	assert.Contains(t, readText(t, "examples", "README.md"), promise, "examples/README.md does not have %q", promise)
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		n := strings.Count(string(b), "\n")
		assert.Less(t, n, limit, "%s has %d lines, want fewer than %d", path, n, limit)
	}
}
