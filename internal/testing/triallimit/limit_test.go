package triallimit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/needs"
)

// TestANewLimitTouchesFewFiles adds a limit to a copy of the repository, and uses it there in both
// front ends.
func TestANewLimitTouchesFewFiles(t *testing.T) {
	needs.Long(t)
	dir := copyRepository(t)
	touched := map[string]bool{}
	for _, e := range edits {
		before, after, found := strings.Cut(read(t, dir, e.file), e.behind)
		require.True(t, found, "%s: %q", e.file, e.behind)
		write(t, dir, e.file, before+e.behind+e.text+after)
		touched[e.file] = true
	}
	goFiles := 0
	for file := range touched {
		if strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") {
			goFiles++
		}
	}
	require.LessOrEqual(t, goFiles, maxGoFiles)
	require.LessOrEqual(t, len(touched)+len(tests)+len(generated), maxFiles)
	for file, text := range tests {
		write(t, dir, file, text)
	}
	run(t, dir, "go", "test", "./idle", "./idlenet", "-run", "^TestTrialLimit$", "-count", "1")
	old := make([]string, len(generated))
	for i, file := range generated {
		old[i] = read(t, dir, file)
	}
	run(t, dir, "go", "test", "./settings", "-run", "^TestTheTablesOfTheDocumentation", "-update")
	for i, file := range generated {
		require.NotEqual(t, old[i], read(t, dir, file), file)
	}
	run(t, dir, "go", "test", "./internal/verdict", "./settings", "./reap", "./internal/configtable", "./docs", "-short")
}

func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// copyRepository copies all of the repository but its history.
func copyRepository(t *testing.T) (dir string) {
	t.Helper()
	dir, root := t.TempDir(), filepath.Join("..", "..", "..")
	all, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, e := range all {
		switch name := e.Name(); {
		case name == ".git":
		case e.IsDir():
			require.NoError(t, os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(root, name))))
		default:
			write(t, dir, name, read(t, root, name))
		}
	}
	return dir
}

func read(t *testing.T, dir, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, file))
	require.NoError(t, err)
	return string(b)
}

func write(t *testing.T, dir, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
}
