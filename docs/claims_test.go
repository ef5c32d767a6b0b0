package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// forCheckers are the pages for checkers. The other pages name no test.
var forCheckers = map[string]bool{"docs/claims.md": true, "docs/results.md": true}

func TestPagesForUsersNameNoTests(t *testing.T) {
	for _, d := range documents(t) {
		if forCheckers[d.path] {
			continue
		}
		for i, line := range d.lines {
			assert.False(t, testPattern.MatchString(line), "%s:%d names a test: move it to docs/claims.md", d.path, i+1)
		}
	}
}

// proofPattern finds what shows a claim besides a test: a command or the simulation.
var proofPattern = regexp.MustCompile("`(?:go|make) |(?i)\\bsimulation\\b")

// unproved returns the rows of docs/claims.md with a claim that nothing shows.
func unproved(lines []string) (rows []string) {
	for _, line := range lines {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| claim |") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if last := cells[len(cells)-1]; len(cells) != 2 || !testPattern.MatchString(last) && !proofPattern.MatchString(last) {
			rows = append(rows, line)
		}
	}
	return rows
}

// TestClaimsHaveTests checks that each claim has a test and each section a page of docs/.
// TestTestsInDocumentsExist looks up the tests, and TestLinksResolve the pages.
func TestClaimsHaveTests(t *testing.T) {
	d := readDocument(t, filepath.Join(root, "docs", "claims.md"))
	assert.Empty(t, unproved(d.lines), "no test shows these claims")
	sections := 0
	for i, line := range d.lines {
		if strings.HasPrefix(line, "## ") {
			sections++
			assert.True(t, linkPattern.MatchString(line), "%s:%d: the section has no link to its page", d.path, i+1)
		}
	}
	require.Positive(t, sections)
}

func TestClaimsWithoutTestsAreFound(t *testing.T) {
	want := []string{"| it is fast | |", "| it is fast |", "| it is fast | everybody knows |"}
	got := unproved(append([]string{
		"| claim | shown by |", "|---|---|", "| it works | `TestIt` |", "| it works | simulation |", "| it works | `make model` |",
	}, want...))
	assert.Equal(t, want, got)
}
