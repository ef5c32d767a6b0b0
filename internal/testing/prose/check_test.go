package prose

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
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
