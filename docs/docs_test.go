// Package docs_test keeps the documents true: the names in them exist, their Go code compiles, and
// their links resolve.
package docs_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/idlewheel/idlewheel"

// root is the directory of the module, seen from this one.
const root = ".."

// A document is a file with Markdown.
type document struct {
	path  string // from the root, with slashes
	lines []string
}

// A block is the text between two fences.
type block struct {
	info string // the rest of the opening fence
	line int    // of the first line inside, counted from 1
	text string
}

// documents returns README.md and docs/*.md.
func documents(t *testing.T) []document {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.False(t, err != nil || len(paths) == 0, "no documents: %v", err)
	var list []document
	for _, path := range append(paths, filepath.Join(root, "README.md")) {
		list = append(list, readDocument(t, path))
	}
	return list
}

func readDocument(t testing.TB, path string) document {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	name, err := filepath.Rel(root, path)
	require.NoError(t, err)
	return document{filepath.ToSlash(name), strings.Split(string(b), "\n")}
}

// split returns the blocks of the document, and its lines with those of blocks and fences empty.
func (d document) split() (prose []string, blocks []block) {
	prose = slices.Clone(d.lines)
	inside := false
	for i, line := range d.lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && !inside:
			blocks = append(blocks, block{info: strings.TrimSpace(strings.TrimSpace(line)[3:]), line: i + 2})
		case inside && !fence:
			blocks[len(blocks)-1].text += line + "\n"
		}
		if fence || inside {
			prose[i] = ""
		}
		if fence {
			inside = !inside
		}
	}
	return prose, blocks
}

// TestProseIsNarrow checks that prose fits into a terminal. Rows of tables may be longer.
func TestProseIsNarrow(t *testing.T) {
	for _, name := range []string{"netty.md", "alternatives.md"} {
		d := readDocument(t, filepath.Join(root, "docs", name))
		for i, line := range d.lines {
			n := len([]rune(line))
			assert.False(t, n > 140 && !strings.HasPrefix(line, "|"), "%s:%d has %d columns, want at most 140", d.path, i+1, n)
		}
	}
}

// TestPagesBeginWithTheirUse checks that the first sentence of a page tells what a reader can do
// after it, and that the index has the page.
func TestPagesBeginWithTheirUse(t *testing.T) {
	index := strings.Join(readDocument(t, filepath.Join(root, "docs", "README.md")).lines, "\n")
	for _, d := range documents(t) {
		name := strings.TrimPrefix(d.path, "docs/")
		if name == d.path || name == "README.md" {
			continue
		}
		assert.Contains(t, index, "]("+name+")", "docs/README.md has no link to %s", name)
		assert.False(t, len(d.lines) < 3 || !strings.HasPrefix(d.lines[2], "After this page you "),
			"%s does not begin with its use", d.path)
	}
}

// TestReadmeIsShort checks that the README is read to its end: it has few lines and names no tests.
func TestReadmeIsShort(t *testing.T) {
	d := readDocument(t, filepath.Join(root, "README.md"))
	n := len(d.lines) - 1
	assert.LessOrEqual(t, n, 130, "README.md has %d lines, want at most 130", n)
	for i, line := range d.lines {
		assert.False(t, testPattern.MatchString(line), "README.md:%d names a test: move it to a page of docs/", i+1)
	}
}
