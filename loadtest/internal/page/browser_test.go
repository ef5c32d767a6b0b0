package page

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
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
	ctx := browser(t)
	seen := watch(ctx)
	require.NoError(t, chromedp.Run(ctx, network.Enable(), log.Enable()))
	for name, r := range results() {
		t.Run(name, func(t *testing.T) {
			name = strings.ReplaceAll(name, " ", "-")
			file := save(t, name, r)
			seen.clear()
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
			requests, complaints := seen.get()
			require.Equal(t, []string{"file://" + file}, requests, "nothing but the page is asked for")
			require.Empty(t, complaints)
		})
	}
}

// browser starts a browser and stops it when the test ends. Where there is none, the test is skipped, but not in CI.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" && os.Getenv("CI") == "" {
		t.Skip("no chromium here: the page is not looked at in a browser")
	}
	require.NotEmpty(t, path, "CI has to have a chromium")
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(stop)
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox)
	ctx, stop = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	require.NoError(t, chromedp.Run(ctx))
	return ctx
}

// A witness keeps what the browser asks for and what it complains about. Safe for concurrent use.
type witness struct {
	mu         sync.Mutex
	requests   []string
	complaints []string
}

func watch(ctx context.Context) *witness {
	w := &witness{}
	chromedp.ListenTarget(ctx, func(event any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			w.requests = append(w.requests, e.Request.URL)
		case *runtime.EventConsoleAPICalled:
			w.complaints = append(w.complaints, "console: "+string(e.Type))
		case *runtime.EventExceptionThrown:
			w.complaints = append(w.complaints, e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			w.complaints = append(w.complaints, e.Entry.Text)
		case *page.EventJavascriptDialogOpening:
			w.complaints = append(w.complaints, "dialog: "+e.Message)
		}
	})
	return w
}

func (w *witness) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests, w.complaints = nil, nil
}

func (w *witness) get() (requests, complaints []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests, w.complaints
}
