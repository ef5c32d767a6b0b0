package prose

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// maxColumns is the width of a line with a comment. A tab counts as one column.
const maxColumns = 100

var (
	freeWord  = regexp.MustCompile(`(?i)\b(who|whoever|whom|whomever|whose)\b`)
	goComment = regexp.MustCompile("^(?:[^\"`]*\\s)?//(?: .*)?$") // not one in a literal
	hashed    = regexp.MustCompile(`^\s*#`)
	link      = regexp.MustCompile(`^[\s/*#-]*https?://\S+$`)
	withHash  = []string{".yaml", ".yml", ".sh", ".conf", ".service", "Makefile", "Containerfile", "run", "limits", "mutants.txt"}
)

// wrong returns what is to be changed in a line of a file.
func wrong(name, line string) string {
	ext, comment, words := filepath.Ext(name), "", line
	switch {
	case ext == ".go":
		comment = goComment.FindString(line)
		if strings.HasSuffix(name, "_test.go") { // its literals are no messages
			words = comment
		}
	case slices.Contains(withHash, ext) || slices.Contains(withHash, filepath.Base(name)):
		comment = hashed.FindString(line)
	case ext != ".md" && ext != ".html":
		return ""
	}
	switch {
	case freeWord.MatchString(words):
		return `the subject of a sentence is a noun: write "new clients are always accepted" instead of "whoever comes is let in"`
	case comment != "" && utf8.RuneCountInString(line) > maxColumns && !link.MatchString(line):
		return "a comment line ends at column 100 at most: break the line, or move the comment above the code"
	}
	return ""
}

// TestProse checks each file of the repository.
func TestProse(t *testing.T) {
	const root = "../../.."
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
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			if what := wrong(path, strings.TrimSuffix(line, "\n")); what != "" {
				t.Errorf("%s:%d: %s", strings.TrimPrefix(path, root+"/"), n, what)
			}
		}
		return err
	}))
}

func TestWhatIsWrong(t *testing.T) {
	wide := strings.Repeat("x", maxColumns-3) // fits exactly after "// "
	for _, tc := range []struct {
		file, line string
		isWrong    bool
	}{
		{"a.go", "package a // whose?", true},
		{"a.go", `var a = "for who asks"`, true},
		{"a.go", "// the whole of whois", false},
		{"a_test.go", "// Whoever", true},
		{"a_test.go", `var a = "for who asks"`, false},
		{"a.go", "// " + wide, false},
		{"a.go", "// é" + wide[1:], false},
		{"a.go", "// x" + wide, true},
		{"a.go", "\t// " + wide, true},
		{"a.go", "var a = 1 // " + wide, true},
		{"a.go", "var a = `" + wide + wide + "`", false},
		{"a.go", "//go:generate " + wide, false},
		{"a.go", "// https://" + wide, false},
		{"a.go", "// See https://" + wide, true},
		{"a.md", "Those who read", true},
		{"a.md", wide + wide, false},
		{"a.html", "<p>Who is idle", true},
		{"run", "# who comes", true},
		{"run", "#xxx" + wide, true},
		{"run", wide + wide, false},
		{"a.yaml", "a: b # whose", true},
		{"a.json", `{"who comes": 1}`, false},
	} {
		require.Equal(t, tc.isWrong, wrong(tc.file, tc.line) != "", "%s: %s", tc.file, tc.line)
	}
}
