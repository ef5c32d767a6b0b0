package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// programs returns the paths of the programs of examples/. It fails the test if there is none.
func programs(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, "examples")); os.IsNotExist(err) {
		t.Skip("there is no module of examples")
	}
	paths, err := filepath.Glob(filepath.Join(root, "examples", "*", "main.go"))
	require.False(t, err != nil || len(paths) == 0, "%d programs, %v", len(paths), err)
	return paths
}

// TestEachRecipeHasAProgram compares the programs in docs/recipes.md with the folders of examples/.
func TestEachRecipeHasAProgram(t *testing.T) {
	paths := programs(t)
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`go -C examples run ./([a-z-]+)`").FindAllStringSubmatch(readText(t, "docs", "recipes.md"), -1) {
		named[m[1]] = true
		_, err := os.Stat(filepath.Join(root, "examples", m[1], "main.go"))
		assert.NoError(t, err, "docs/recipes.md runs a program that does not exist")
	}
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		assert.True(t, named[name], "docs/recipes.md does not have the program %s", name)
	}
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
