package browser

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// views are the windows in which the tests open a report.
var views = []struct {
	name   string
	width  int64
	scheme string
}{
	{"light-1280", 1280, "light"}, {"dark-1280", 1280, "dark"}, {"light-320", 320, "light"}, {"dark-320", 320, "dark"},
	{"light-768", 768, "light"}, {"light-1920", 1920, "light"},
}

// reports returns the files of the pages that the tests of loadtest write.
func reports(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	test := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run=^TestPagesAreWellFormed$", "./loadtest/internal/page")
	test.Dir, test.Env = root, append(os.Environ(), "IDLEWHEEL_PAGES="+dir)
	out, err := test.CombinedOutput()
	require.NoError(t, err, "%s", out)
	var files []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".html" {
			files = append(files, path)
		}
		return err
	}))
	require.Len(t, files, 7, "one page for each result of the test")
	return files
}

// TestReports opens the reports of loadtest: the browser complains about nothing, requests nothing
// else, and needs no horizontal scroll bar.
func TestReports(t *testing.T) {
	tab := startBrowser(t)
	seen := watch(t, tab)
	for _, file := range reports(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".html")
		t.Run(name, func(t *testing.T) {
			seen.clear()
			run(t, tab, chromedp.Navigate("file://"+file))
			for _, view := range views {
				emulate(t, tab, view.width, 900, view.scheme)
				overflow := eval[int](t, tab, `document.documentElement.scrollWidth - document.documentElement.clientWidth`)
				require.LessOrEqual(t, overflow, 0, "%s needs no scroll bar", view.name)
				small := eval[int](t, tab,
					`[...document.querySelectorAll("svg")].filter(s => s.getBoundingClientRect().width < 200).length`)
				require.Zero(t, small, "%s shows each chart large enough", view.name)
				require.Equal(t, map[string]string{"light": "rgb(244, 245, 247)", "dark": "rgb(16, 20, 26)"}[view.scheme],
					eval[string](t, tab, `getComputedStyle(document.body).backgroundColor`))
				screenshot(t, tab, view.name)
			}
			requests, complaints := seen.get()
			require.Equal(t, []string{"file://" + file}, requests, "the page requests nothing")
			require.Empty(t, complaints)
		})
	}
}
