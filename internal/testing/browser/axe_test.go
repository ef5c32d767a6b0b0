package browser

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// The package of axe-core that npm fetches, and its checksum.
const (
	axeName = "axe-core-4.14.1.tgz"
	axeSum  = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
)

var errNoAxe = errors.New("npm cannot fetch axe-core")

// axe returns the script of axe-core. npm keeps the package in its cache.
var axe = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "axe")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	npm := exec.Command("npm", "pack", "axe-core@4.14.1", "--prefer-offline", "--fetch-retries=0", "--fetch-timeout=30000", "--pack-destination", dir)
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %w\n%s", errNoAxe, err, out)
	}
	packed, err := os.ReadFile(filepath.Join(dir, axeName))
	if err != nil {
		return "", err
	}
	if sum := sha256.Sum256(packed); hex.EncodeToString(sum[:]) != axeSum {
		return "", errors.New("the checksum of axe-core is wrong")
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", err
	}
	files := tar.NewReader(unzipped)
	for {
		header, err := files.Next()
		if err != nil {
			return "", err
		}
		if header.Name == "package/axe.min.js" {
			script, err := io.ReadAll(files)
			return string(script), err
		}
	}
})

// breaches returns the rules of axe that the page breaks, with the elements. It returns nil where
// npm cannot fetch axe-core, except in CI.
func breaches(t *testing.T, tab context.Context) []string {
	t.Helper()
	script, err := axe()
	if errors.Is(err, errNoAxe) && os.Getenv("CI") == "" {
		t.Log(err)
		return nil
	}
	require.NoError(t, err)
	run(t, tab, chromedp.Evaluate(script+";0", nil))
	return eval[[]string](t, tab, `axe.run().then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.html.slice(0, 120))))`)
}
