package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/browser"
)

// views are the windows in which a page is looked at.
var views = []struct {
	name   string
	width  int64
	scheme string
}{
	{"light-1280", 1280, "light"}, {"dark-1280", 1280, "dark"}, {"light-320", 320, "light"}, {"dark-320", 320, "dark"},
	{"light-768", 768, "light"}, {"light-1920", 1920, "light"},
}

// TestPagesInBrowser opens pages in a real browser, which is to find nothing wrong, to ask for nothing else, and to need no scroll bar.
func TestPagesInBrowser(t *testing.T) {
	ctx := browser.Start(t)
	seen := browser.Watch(t, ctx)
	for name, r := range results() {
		t.Run(name, func(t *testing.T) {
			name = strings.ReplaceAll(name, " ", "-")
			file := save(t, name, r)
			seen.Clear()
			require.NoError(t, chromedp.Run(ctx, chromedp.Navigate("file://"+file)))
			for _, view := range views {
				var overflow, charts, shown int
				var background string
				var picture []byte
				require.NoError(t, chromedp.Run(ctx,
					emulation.SetDeviceMetricsOverride(view.width, 900, 1, false),
					emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: view.scheme}}),
					chromedp.Evaluate(`document.documentElement.scrollWidth - document.documentElement.clientWidth`, &overflow),
					chromedp.Evaluate(`document.querySelectorAll("svg").length / 2`, &charts),
					chromedp.Evaluate(`[...document.querySelectorAll("svg")].filter(s => s.getBoundingClientRect().width > 200).length`, &shown),
					chromedp.Evaluate(`getComputedStyle(document.body).backgroundColor`, &background),
					chromedp.FullScreenshot(&picture, 100)))
				require.LessOrEqual(t, overflow, 0, "%s needs no scroll bar", view.name)
				require.Equal(t, charts, shown, "%s shows one of two drawings of each chart", view.name)
				require.Equal(t, map[string]string{"light": "rgb(244, 245, 247)", "dark": "rgb(16, 20, 26)"}[view.scheme], background)
				require.NoError(t, os.WriteFile(filepath.Join(t.ArtifactDir(), name+"-"+view.name+".png"), picture, 0o644))
			}
			requests, complaints := seen.Get()
			require.Equal(t, []string{"file://" + file}, requests, "nothing but the page is asked for")
			require.Empty(t, complaints)
		})
	}
}
