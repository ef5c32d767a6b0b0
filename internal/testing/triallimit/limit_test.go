package triallimit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestANewLimitTouchesFewFiles adds a limit to a copy of the repository, and uses it there in both
// front ends.
func TestANewLimitTouchesFewFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds both front ends")
	}
	dir := copyRepository(t)
	touched := map[string]bool{}
	for _, e := range edits {
		b, err := os.ReadFile(filepath.Join(dir, e.file))
		require.NoError(t, err)
		before, after, found := strings.Cut(string(b), e.behind)
		require.True(t, found, "%s: %q", e.file, e.behind)
		write(t, dir, e.file, before+e.behind+e.text+after)
		touched[e.file] = true
	}
	require.LessOrEqual(t, len(touched), maxGoFiles)
	for file, text := range tests {
		write(t, dir, file, text)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "./idle", "./idlenet", "-run", "^TestTrialLimit$", "-count", "1")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// copyRepository copies the Go packages that the front ends and their tests need.
func copyRepository(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	root := filepath.Join("..", "..", "..")
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		write(t, dir, name, string(b))
	}
	folders := []string{"admin", "idle", "idlenet", "internal", "metrics", "reap", "server", "settings", "sourcelimit", "wheel"}
	for _, folder := range folders {
		require.NoError(t, os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(root, folder))))
	}
	return dir
}

func write(t *testing.T, dir, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
}
