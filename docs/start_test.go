package docs_test

import (
	"bufio"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

// tutorial is the document with a program that grows from block to block.
const tutorial = "docs/start.md"

// A declaration is a part of the program of the tutorial, with its comment.
type declaration struct {
	name, text string
	kind       int // its place in a file: imports, variables, types and functions
	line       int // of the tutorial
}

// stepsOf returns the program after each block of the tutorial. A declaration replaces an earlier
// one of the same name.
func stepsOf(path string, blocks []block) (steps [][]declaration, err error) {
	var program []declaration
	for _, b := range blocks {
		if b.info != "go" {
			continue
		}
		file, positions := "package main\n"+strings.TrimPrefix(b.text, "package main\n"), token.NewFileSet()
		f, err := parser.ParseFile(positions, "", file, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, b.line, err)
		}
		if formatted, _ := format.Source([]byte(file)); !slices.Equal(strings.Fields(string(formatted)), strings.Fields(file)) {
			return nil, fmt.Errorf("%s:%d is not formatted", path, b.line)
		}
		// The line of the document with the package clause, or the line before the block.
		first := b.line + strings.Count(b.text, "\n") - strings.Count(file, "\n")
		for _, d := range f.Decls {
			next, begin := describe(d)
			at := positions.Position(begin)
			next.line, next.text = first+at.Line-1, file[at.Offset:positions.Position(d.End()).Offset]
			if i := slices.IndexFunc(program, func(d declaration) bool { return d.name == next.name }); i >= 0 {
				program[i] = next
			} else {
				program = append(program, next)
			}
		}
		steps = append(steps, slices.Clone(program))
	}
	return steps, nil
}

// describe returns the name and the kind of a declaration, and where it begins with its comment.
// The name is import, T, v, f or T.m.
func describe(d ast.Decl) (declaration, token.Pos) {
	next, doc := declaration{name: "import", kind: 3}, (*ast.CommentGroup)(nil)
	switch d := d.(type) {
	case *ast.FuncDecl:
		next.name, doc = funcName(d), d.Doc
	case *ast.GenDecl:
		doc = d.Doc
		next.kind = map[token.Token]int{token.IMPORT: 0, token.VAR: 1, token.CONST: 1, token.TYPE: 2}[d.Tok]
		switch spec := d.Specs[0].(type) {
		case *ast.TypeSpec:
			next.name = spec.Name.Name
		case *ast.ValueSpec:
			next.name = spec.Names[0].Name
		}
	}
	if doc != nil {
		return next, doc.Pos()
	}
	return next, d.Pos()
}

// source returns a program as Go, with the lines of the tutorial.
func source(path string, program []declaration) string {
	var all strings.Builder
	all.WriteString("package main\n")
	for _, d := range program {
		fmt.Fprintf(&all, "//line %s:%d\n%s\n", path, d.line, d.text)
	}
	return all.String()
}

var update = flag.Bool("update", false, "write the finished file of the tutorial")

// TestTheFinishedFileIsTheLastStep compares the file with the tutorial. To write the file, run
// go test ./docs -update.
func TestTheFinishedFileIsTheLastStep(t *testing.T) {
	_, blocks := readDocument(t, filepath.Join(root, tutorial)).split()
	steps, err := stepsOf(tutorial, blocks)
	require.NoError(t, err)
	last := steps[len(steps)-1]
	slices.SortStableFunc(last, func(a, b declaration) int { return a.kind - b.kind })
	var text strings.Builder
	text.WriteString("// Command chat is the chat server of docs/start.md, with all of its steps.\npackage main\n\n")
	for _, d := range last {
		text.WriteString(d.text + "\n\n")
	}
	want, err := format.Source([]byte(text.String()))
	require.NoError(t, err)
	path := filepath.Join("testdata", "chat", "main.go")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, want, 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "run go test ./docs -update")
	assert.Contains(t, strings.Join(readDocument(t, filepath.Join(root, tutorial)).lines, "\n"), "](testdata/chat/main.go)")
}

// A chatter is a client of the chat.
type chatter struct {
	net.Conn
	lines *bufio.Reader
}

func newChatter(t *testing.T, addr, name string) chatter {
	t.Helper()
	c := sockets.Dial(t, "tcp", addr)
	client := chatter{c, bufio.NewReader(c)}
	client.wantLine(t, "your name?")
	if name != "" {
		fmt.Fprintln(c, name)
		client.wantLine(t, name+" joined")
	}
	return client
}

// wantLine reads lines until the wanted one, and answers pings.
func (c chatter) wantLine(t *testing.T, want string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		line, err := c.lines.ReadString('\n')
		switch line = strings.TrimSpace(line); {
		case err != nil:
			t.Fatalf("%v, want the line %q", err, want)
		case line == want:
			return
		case line == "PING":
			fmt.Fprintln(c, "PONG")
		}
	}
}

// rest reads to the end, without an answer to pings.
func (c chatter) rest() string {
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	all, err := io.ReadAll(c.lines)
	if err != nil {
		return fmt.Sprintf("%s%v", all, err)
	}
	return string(all)
}

// TestTheTutorialRuns runs the last program of the tutorial with clients that talk, say nothing,
// are kicked and are drained.
func TestTheTutorialRuns(t *testing.T) {
	program := filepath.Join(t.TempDir(), "chat")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./testdata/chat").CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.CommandContext(t.Context(), program, "-addr", "127.0.0.1:0", "-page", "127.0.0.1:0", "-quiet", "1s")
	log, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	output := bufio.NewReader(log)
	line, err := output.ReadString('\n')
	m := regexp.MustCompile(`listening on (\S+), page on (http://\S+/)\n`).FindStringSubmatch(line)
	require.NotNil(t, m, "%q, %v", line, err)
	addr, page := m[1], m[2]

	// Before alice, because her pings have no answer meanwhile.
	require.Regexp(t, "goodbye: no handshake\n$", newChatter(t, addr, "").rest())
	alice, bob := newChatter(t, addr, "alice"), newChatter(t, addr, "bob")
	fmt.Fprintln(bob, "hello")
	alice.wantLine(t, "bob: hello")
	fmt.Fprintln(alice, "/kick bob")
	require.Regexp(t, "goodbye: kicked\n$", bob.rest())
	alice.wantLine(t, "bob left")

	carol := newChatter(t, addr, "carol")
	left := make(chan string, 1)
	go func() { left <- carol.rest() }()
	alice.wantLine(t, "carol left") // alice answers the pings meanwhile
	require.Equal(t, "PING\nPING\ngoodbye: heartbeat timeout\n", <-left)

	closed, err := http.Get(page + "api/closed")
	require.NoError(t, err)
	reasons, _ := io.ReadAll(closed.Body)
	closed.Body.Close()
	for _, reason := range []string{"kicked", "no handshake", "heartbeat timeout"} {
		assert.Contains(t, string(reasons), reason, "%q is not in %s", reason, reasons)
	}

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Regexp(t, "goodbye: drained\n$", alice.rest())
	rest, _ := io.ReadAll(output)
	if err := cmd.Wait(); err != nil || !strings.Contains(string(rest), "drained\n") {
		t.Errorf("%v, %s", err, rest)
	}
}

// TestLaterDeclarationsReplaceEarlierOnes checks the steps of a small document.
func TestLaterDeclarationsReplaceEarlierOnes(t *testing.T) {
	steps, err := stepsOf("x.md", []block{
		{info: "go", line: 3, text: "package main\n\nimport \"fmt\"\n\nfunc f() int { return 1 }\n\nfunc main() { fmt.Println(f()) }\n"},
		{info: "text", line: 12, text: "nothing\n"},
		{info: "go", line: 20, text: "type t struct{}\n\nfunc f() int { return 2 }\n"},
	})
	if err != nil || len(steps) != 2 {
		t.Fatal(steps, err)
	}
	want := "package main\n//line x.md:5\nimport \"fmt\"\n//line x.md:22\nfunc f() int { return 2 }\n" +
		"//line x.md:9\nfunc main() { fmt.Println(f()) }\n//line x.md:20\ntype t struct{}\n"
	assert.Equal(t, want, source("x.md", steps[1]))
}
