package prose

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../../.."

// TestProse checks each file of the repository.
func TestProse(t *testing.T) {
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
