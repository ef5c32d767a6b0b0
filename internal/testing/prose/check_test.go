package prose

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// maxColumns is the width of a line with a comment. A tab counts as one column.
const maxColumns = 100

// A rule finds lines to rewrite. Its text gives an example of a better wording.
type rule struct {
	name, example string
}

var (
	width = rule{
		fmt.Sprintf("a comment line ends at column %d at most", maxColumns),
		"break the line, or move the comment above the code",
	}
	relative = rule{
		"the subject of a sentence is a noun",
		`write "new clients are always accepted" instead of "whoever comes is let in"`,
	}
)

// A finding is a line that breaks a rule.
type finding struct {
	line int
	rule rule
	text string // the part that breaks it
}

func (f finding) String() string {
	return fmt.Sprintf("%q: %s: %s", f.text, f.rule.name, f.rule.example)
}

var (
	freeWord  = regexp.MustCompile(`(?i)\b(who|whoever|whom|whomever|whose)\b`)
	directive = regexp.MustCompile(`^//([a-z]+:|export |line )`)
	link      = regexp.MustCompile(`https?://\S+`)
)

// check returns the findings of a file. The kind of the file is known by its name.
func check(name, text string) ([]finding, error) {
	switch ext := filepath.Ext(name); {
	case ext == ".go":
		return checkGo(name, text)
	case ext == ".md" || ext == ".html":
		return checkWords(1, text), nil
	case hasHashComments(name):
		return checkHashComments(text), nil
	}
	return nil, nil
}

// hasHashComments reports whether comments begin with a # in this file.
func hasHashComments(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".sh", ".conf", ".service":
		return true
	}
	switch filepath.Base(name) {
	case "Makefile", "Containerfile", "run", "limits", "mutants.txt":
		return true
	}
	return false
}

// checkGo checks comments and, outside of tests, string literals with more than one word. It leaves
// out generated files.
func checkGo(name, text string) (found []finding, err error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, text, parser.ParseComments)
	if err != nil || ast.IsGenerated(f) {
		return nil, err
	}
	lines := strings.Split(text, "\n")
	for _, group := range f.Comments {
		for _, c := range group.List {
			if directive.MatchString(c.Text) {
				continue
			}
			at := files.Position(c.Pos())
			found = append(found, checkWords(at.Line, c.Text)...)
			last := at.Line + strings.Count(c.Text, "\n")
			for line := at.Line; line <= last; line++ {
				if isWide(lines[line-1]) {
					found = append(found, finding{line, width, tail(lines[line-1])})
				}
			}
		}
	}
	if strings.HasSuffix(name, "_test.go") {
		return found, nil
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			found = append(found, checkLiteral(files.Position(lit.Pos()).Line, lit.Value)...)
		}
		return true
	})
	return found, nil
}

// checkLiteral checks a string literal. One without a space is a name and not a message.
func checkLiteral(line int, literal string) []finding {
	text, err := strconv.Unquote(literal)
	if err != nil || !strings.Contains(text, " ") {
		return nil
	}
	if literal[0] != '`' {
		text = strings.ReplaceAll(text, "\n", " ")
	}
	return checkWords(line, text)
}

func checkHashComments(text string) (found []finding) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.HasPrefix(strings.TrimSpace(line), "#") && isWide(line) {
			found = append(found, finding{n, width, tail(line)})
		}
		found = append(found, checkWords(n, line)...)
	}
	return found
}

// checkWords checks a text that begins on a line.
func checkWords(line int, text string) (found []finding) {
	for _, at := range freeWord.FindAllStringIndex(text, -1) {
		found = append(found, finding{line + strings.Count(text[:at[0]], "\n"), relative, text[at[0]:at[1]]})
	}
	return found
}

// tail returns the part of a line that is too wide.
func tail(line string) string { return string([]rune(line)[maxColumns:]) }

// isWide reports whether a line is too wide. A line of one link that is too wide by itself is not.
func isWide(line string) bool {
	if utf8.RuneCountInString(line) <= maxColumns {
		return false
	}
	url := link.FindString(line)
	before, after, _ := strings.Cut(line, url)
	return url == "" || strings.Trim(before, " \t/*#-") != "" || strings.TrimSpace(after) != ""
}

const root = "../../.."

// TestProse checks each file of the repository.
func TestProse(t *testing.T) {
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && e.Name() == ".git":
			return filepath.SkipDir
		case !e.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found, err := check(path, string(text))
		name, _ := filepath.Rel(root, path)
		for _, f := range found {
			t.Errorf("%s:%d: %v", name, f.line, f)
		}
		return err
	}))
}

// TestFindings has a text of each kind and its findings: lines with words, and lines too wide.
func TestFindings(t *testing.T) {
	wide := strings.Repeat("x", maxColumns-2) // fits exactly after "//"
	for name, tc := range map[string]struct {
		file, text string
		words      []int
		wide       []int
	}{
		"comments":          {"a.go", "// Package a is for those who read.\npackage a // whose?\n", []int{1, 2}, nil},
		"comment of a test": {"a_test.go", "package a\n\n// Whoever\n", []int{3}, nil},
		"block comment":     {"a.go", "package a\n\n/* a\n\tWhom b */\n", []int{4}, nil},
		"block of width":    {"a.go", "package a\n\n/* a\n" + wide + "xxx\n*/\n", nil, []int{4}},
		"part of a word":    {"a.go", "// Package a is the whole of whois.\npackage a\n", nil, nil},
		"message":           {"a.go", "package a\n\nvar a = \"for who asks\"\n", []int{3}, nil},
		"message of lines":  {"a.go", "package a\n\nvar a = `for\nwho asks`\n", []int{4}, nil},
		"escaped newline":   {"a.go", "package a\n\nvar a = \"for\\nwho asks\"\n", []int{3}, nil},
		"key":               {"a.go", "package a\n\nvar a = \"who\"\n", nil, nil},
		"literal of a test": {"a_test.go", "package a\n\nvar a = \"for who asks\"\n", nil, nil},
		"fits":              {"a.go", "package a\n\n//" + wide + "\n", nil, nil},
		"too wide":          {"a.go", "package a\n\n//" + wide + "x\n", nil, []int{3}},
		"tab is a column":   {"a.go", "package a\n\nfunc a() {\n\t//" + wide + "\n}\n", nil, []int{4}},
		"runes":             {"a.go", "package a\n\n//" + strings.Repeat("é", maxColumns-2) + "\n", nil, nil},
		"after code":        {"a.go", "package a\n\nvar a = 1 //" + wide + "\n", nil, []int{3}},
		"no comment":        {"a.go", "package a\n\nvar a = `" + wide + wide + "`\n", nil, nil},
		"directive":         {"a.go", "package a\n\n//go:generate " + wide + "\n", nil, nil},
		"link":              {"a.go", "package a\n\n// https://" + wide + "\n", nil, nil},
		"link in a text":    {"a.go", "package a\n\n// See https://" + wide + "\n", nil, []int{3}},
		"short link":        {"a.go", "package a\n\n// https://a.b " + wide + "\n", nil, []int{3}},
		"generated":         {"a.go", "// Code generated by who. DO NOT EDIT.\n\npackage a\n\n// who\n", nil, nil},
		"document":          {"a.md", "# Title\n\nThose who read\n" + wide + wide + "\n", []int{3}, nil},
		"page":              {"page.html", "<p>\n<p>Who is idle\n", []int{2}, nil},
		"script":            {"run", "set -u\n# who comes\n#" + wide + "xx\n" + wide + wide + "\n", []int{2}, []int{3}},
		"manifest":          {"a.yaml", "a: b # whose\n", []int{1}, nil},
		"other file":        {"a.json", `{"who comes": 1}`, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := check(tc.file, tc.text)
			require.NoError(t, err)
			lines := map[rule][]int{}
			for _, f := range found {
				lines[f.rule] = append(lines[f.rule], f.line)
			}
			require.Equal(t, tc.words, lines[relative])
			require.Equal(t, tc.wide, lines[width])
		})
	}
	_, err := check("a.go", "no Go")
	require.Error(t, err)
}

// TestFindingsHelp checks that a finding names its rule and gives an example.
func TestFindingsHelp(t *testing.T) {
	for _, r := range []rule{width, relative} {
		text := finding{1, r, "whoever"}.String()
		require.Contains(t, text, `"whoever"`)
		require.Contains(t, text, r.name)
		require.Contains(t, text, r.example)
	}
}
