// Package docs_test keeps the documents true: the names in them exist, their Go code compiles, and
// their links resolve.
package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

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

// TestReadmeIsShort checks that the README is read to its end.
func TestReadmeIsShort(t *testing.T) {
	d := readDocument(t, filepath.Join(root, "README.md"))
	n := len(d.lines) - 1
	assert.LessOrEqual(t, n, 130, "README.md has %d lines, want at most 130", n)
}

var (
	linkPattern    = regexp.MustCompile(`\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)?)\)`)
	headingPattern = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	labelPattern   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns the anchors of the headings of a document, in the form of GitHub.
func (d document) anchors() map[string]bool {
	list := map[string]bool{}
	seen := map[string]int{}
	prose, _ := d.split()
	for _, line := range prose {
		m := headingPattern.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, labelPattern.ReplaceAllString(m[1], "$1"))
		if n := seen[slug]; n > 0 {
			list[fmt.Sprintf("%s-%d", slug, n)] = true
		} else {
			list[slug] = true
		}
		seen[slug]++
	}
	return list
}

// broken returns what is wrong with a link of the document, "" if it resolves.
func (d document) broken(t testing.TB, link string) string {
	if strings.Contains(link, "://") {
		if !strings.HasPrefix(link, "https://") {
			return "is not https"
		}
		return ""
	}
	path, anchor, _ := strings.Cut(link, "#")
	target := filepath.Join(root, filepath.FromSlash(d.path))
	if path != "" {
		target = filepath.Join(filepath.Dir(target), filepath.FromSlash(path))
	}
	if _, err := os.Stat(target); err != nil {
		return "leads to no file"
	}
	if anchor != "" && strings.HasSuffix(target, ".md") && !readDocument(t, target).anchors()[anchor] {
		return "has an anchor without a heading"
	}
	return ""
}

func TestLinksResolve(t *testing.T) {
	list := documents(t)
	for _, name := range []string{"CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "internal/README.md"} {
		list = append(list, readDocument(t, filepath.Join(root, name)))
	}
	for _, d := range list {
		prose, _ := d.split()
		for i, line := range prose {
			for _, m := range linkPattern.FindAllStringSubmatch(spanPattern.ReplaceAllString(line, "``"), -1) {
				why := d.broken(t, m[1])
				assert.Empty(t, why, "%s:%d: the link %s %s", d.path, i+1, m[1], why)
			}
		}
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	d := document{"docs/netty.md", nil}
	for link, ok := range map[string]bool{
		"../README.md": true, "results.md#guarantees": true, "night.md#symptoms": true, "https://netty.io/": true,
		"../README.md#nonsense": false, "nonsense.md": false, "http://netty.io/": false,
	} {
		why := d.broken(t, link)
		assert.Equal(t, ok, why == "", "%s: %q", link, why)
	}
}

// importsOf returns the packages that go list prints with a template, by package. Names have no
// module path.
func importsOf(t *testing.T, template string) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}} {{join "+template+` " "}}`, "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	list := map[string][]string{}
	for line := range strings.Lines(strings.ReplaceAll(string(out), modulePath+"/", "")) {
		names := strings.Fields(line)
		list[names[0]] = names[1:]
	}
	return list
}

// TestTheDiagramOfPackagesIsTrue compares the arrows in CONTRIBUTING.md with the imports of the
// public packages and programs.
func TestTheDiagramOfPackagesIsTrue(t *testing.T) {
	drawn := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^    (\S+) +──▶ (.+)$`).FindAllStringSubmatch(readText(t, "CONTRIBUTING.md"), -1) {
		drawn[m[1]] = strings.Split(m[2], ", ")
		slices.Sort(drawn[m[1]])
	}
	all := importsOf(t, ".Imports")
	for name, imports := range all {
		imports = slices.DeleteFunc(imports, func(of string) bool {
			_, own := all[of]
			return !own || strings.Contains(of, "/")
		})
		assert.False(t, !strings.Contains(name, "internal") && !slices.Equal(imports, drawn[name]),
			"%s imports %v, and CONTRIBUTING.md has %v", name, imports, drawn[name])
	}
	for name := range drawn {
		_, ok := all[name]
		assert.True(t, ok, "CONTRIBUTING.md has the package %s, which does not exist", name)
	}
}

// TestPackagesLinkWhatTheDocumentsSay checks which packages link net/http and the client library of
// Prometheus.
func TestPackagesLinkWhatTheDocumentsSay(t *testing.T) {
	deps := importsOf(t, ".Deps")
	for name, http := range map[string]bool{
		"wheel": false, "timer": false, "sourcelimit": false, "reap": false, "idle": true, "idlenet": true,
	} {
		got := slices.Contains(deps[name], "net/http")
		assert.Equal(t, http, got, "%s links net/http: %v, want %v", name, got, http)
		assert.NotContains(t, deps[name], "github.com/prometheus/client_golang/prometheus", "%s links Prometheus", name)
	}
}

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

func readText(t *testing.T, elements ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{root}, elements...)...))
	require.NoError(t, err)
	return string(b)
}

// TestDependabotKnowsEachModule checks that each go.mod is in the configuration of Dependabot.
func TestDependabotKnowsEachModule(t *testing.T) {
	listed := readText(t, ".github", "dependabot.yml")
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != "go.mod" {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		entry := "      - /" + strings.TrimPrefix(filepath.ToSlash(dir), ".") + "\n"
		assert.Contains(t, listed, entry, ".github/dependabot.yml has no line %q", entry)
		return err
	})
	require.NoError(t, err)
}

// TestTheDocumentsNameTheOldestGo checks that the README and the policy name the Go of go.mod. CI
// runs the tests with it by make others.
func TestTheDocumentsNameTheOldestGo(t *testing.T) {
	line := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readText(t, "go.mod"))
	require.NotNil(t, line, "go.mod has no go line")
	for _, path := range []string{"README.md", "docs/compatibility.md", "CONTRIBUTING.md", "docs/start.md"} {
		assert.Contains(t, readText(t, path), "Go "+line[1], "%s does not have Go %s", path, line[1])
	}
	gnet := regexp.MustCompile(`gnet/v2 (v\S+)`).FindStringSubmatch(readText(t, "go.mod"))
	for _, path := range []string{"README.md", "docs/start.md"} {
		assert.Contains(t, readText(t, path), "gnet/v2@"+gnet[1], "%s does not get gnet %s", path, gnet[1])
	}
}

// TestTheWarningsOfTheLogAreExplained looks in night.md for the first four words of each record
// from level info on. Package timer says what its records mean.
func TestTheWarningsOfTheLogAreExplained(t *testing.T) {
	page := readText(t, "docs", "night.md")
	record := regexp.MustCompile(`\.(?:Info|Warn|Error)\((?:&[\w.]+, )?"(\w+(?: [\w']+){1,3})`)
	for _, dir := range []string{"idle", "idlenet", "internal/watch", "server", "admin", "cmd/echo-heartbeat"} {
		files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, words := range record.FindAllSubmatch(text, -1) {
				if !strings.HasSuffix(file, "_test.go") {
					assert.True(t, strings.Contains(page, string(words[1])), "%s: %s", file, words[1])
				}
			}
		}
	}
}

var (
	resultsPattern = regexp.MustCompile(`\]\((?:\.\./)*(bench/results/\w+\.md)\)`)
	figurePattern  = regexp.MustCompile(`\d+(?:,\d{3})*(?:\.\d+)?`)
)

// TestFiguresAreThoseOfTheirResults checks that the figures of a row or paragraph are in the
// results that it links to.
func TestFiguresAreThoseOfTheirResults(t *testing.T) {
	checked := 0
	for _, d := range documents(t) {
		for part := range strings.SplitSeq(strings.ReplaceAll(strings.Join(d.lines, "\n"), "\n|", "\n\n|"), "\n\n") {
			link := resultsPattern.FindStringSubmatch(part)
			if link == nil {
				continue
			}
			measured := figurePattern.FindAllString(strings.Join(readDocument(t, filepath.Join(root, link[1])).lines, "\n"), -1)
			text := regexp.MustCompile("\\]\\([^)]*\\)|`[^`]*`|p99|99 %").ReplaceAllString(part, "")
			for _, figure := range figurePattern.FindAllString(text, -1) {
				checked++
				assert.Contains(t, measured, figure, "%s: %.60s...: %s is not in %s", d.path, part, figure, link[1])
			}
		}
	}
	assert.Greater(t, checked, 20)
}
