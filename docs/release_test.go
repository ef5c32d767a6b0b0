package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
	if line == nil {
		t.Fatal("go.mod has no go line")
	}
	for path, want := range map[string]string{
		"README.md":             "Go " + line[1],
		"docs/compatibility.md": "Go " + line[1],
		"CONTRIBUTING.md":       "Go " + line[1],
		"docs/start.md":         "Go " + line[1],
	} {
		assert.Contains(t, readText(t, path), want, "%s does not have %q", path, want)
	}
	gnet := regexp.MustCompile(`gnet/v2 (v\S+)`).FindStringSubmatch(readText(t, "go.mod"))
	for _, path := range []string{"README.md", "docs/start.md"} {
		assert.Contains(t, readText(t, path), "gnet/v2@"+gnet[1], "%s does not get gnet %s", path, gnet[1])
	}
}

// TestTheChangelogHasVersions checks the form of the changelog: versions with dates and links, the
// newest first, and known kinds of changes.
func TestTheChangelogHasVersions(t *testing.T) {
	text := readText(t, "CHANGELOG.md")
	heading := regexp.MustCompile(`^## \[(Unreleased|\d+\.\d+\.\d+)\]( - \d{4}-\d{2}-\d{2})?$`)
	kind := regexp.MustCompile(`^### (Added|Changed|Deprecated|Removed|Fixed|Security)$`)
	versions := 0
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(line, "##") {
			continue
		}
		m := heading.FindStringSubmatch(line)
		switch {
		case m == nil:
			assert.True(t, kind.MatchString(line), "%q is not a heading of the form", line)
			continue
		case (m[1] == "Unreleased") != (m[2] == "") || (m[1] == "Unreleased") != (versions == 0):
			t.Errorf("%q: only the first heading is Unreleased, the others have dates", line)
		case !strings.Contains(text, "\n["+m[1]+"]: https://"):
			t.Errorf("%s has no link at the end", m[1])
		}
		versions++
	}
	assert.GreaterOrEqual(t, versions, 2, "there is no version")
}
