package docs_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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

// TestGoBlocksCompile compiles the programs of each document. A block with the mark "go fragment"
// is left out.
func TestGoBlocksCompile(t *testing.T) {
	for _, d := range documents(t) {
		t.Run(d.path, func(t *testing.T) {
			t.Parallel()
			sources, err := sourcesOf(d)
			if err != nil {
				t.Fatal(err)
			}
			for _, source := range sources {
				if out, err := build(t, source, os.DevNull); err != nil {
					t.Errorf("%v\n%s\nThe names above are lines of %s.", err, out, d.path)
				}
			}
		})
	}
}

// sourcesOf returns the programs of a document. A block with a package clause is a program of its
// own. All other Go blocks are one package: declarations are copied, and a block of statements
// becomes a function. The tutorial has a program for each of its steps.
func sourcesOf(d document) (sources []string, err error) {
	_, blocks := d.split()
	if d.path == tutorial {
		return stepsOf(d.path, blocks)
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

// build compiles a file as a package of this module, with an overlay instead of a file in it.
// It writes the program to the file out.
func build(t *testing.T, source, out string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "snippets.go")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "snippets", "snippets.go"): file}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", list, "-o", out, "./snippets")
	messages, err := cmd.CombinedOutput()
	return string(messages), err
}

func TestBuildFindsMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"var _ = idle.Config{ReadTimeout: time.Second}\n":   "",
		"cfg := idle.Config{}\nreturn cfg.Nonsense\n":       "Nonsense",
		"var _ = idle.Config{ReadTimeout: \"ten\"}\n":       "Duration value",
		"func f(c gnet.Conn) { c.Write() }\nfunc main() {}": "not enough arguments",
	} {
		source, err := packageOf("x.md", []block{{info: "go", line: 7, text: text}})
		if err != nil {
			t.Fatal(err)
		}
		out, err := build(t, source, os.DevNull)
		if (err == nil) != (want == "") || !strings.Contains(out, want) || want != "" && !strings.Contains(out, "x.md:") {
			t.Errorf("%q: %v, %q; want %q at a line of x.md", text, err, out, want)
		}
	}
	if _, err := packageOf("x.md", []block{{info: "go", line: 7, text: "func {"}}); err == nil {
		t.Error("a block that is not Go is accepted")
	}
}
