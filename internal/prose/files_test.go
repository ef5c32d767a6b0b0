package prose

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// folders are checked with the folders below them, except for ".", which is the root alone.
var folders = []string{
	".", ".ci", ".github", "admin", "bench", "cmd", "deploy", "docs", "idle", "internal", "loadtest",
	"metrics", "mutants", "server", "settings", "tools", "wheel",
}

// TestProse checks each file of the folders.
func TestProse(t *testing.T) {
	for _, folder := range folders {
		top := filepath.Join(root, folder)
		require.NoError(t, filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case e.IsDir() && (e.Name() == ".git" || folder == "." && path != top):
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
}
