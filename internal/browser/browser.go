// Package browser opens pages in Chromium for tests, and watches what it asks for and what it complains about.
package browser

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// Start starts a browser with one tab, which the context is for, and stops it when the test ends, three minutes later at most. Where there
// is none, the test is skipped, but not in CI.
func Start(t testing.TB) context.Context {
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

// A Witness keeps what a tab asks for and what it complains about. Safe for concurrent use.
type Witness struct {
	mu         sync.Mutex
	requests   []string
	complaints []string
}

// Watch begins to watch a tab.
func Watch(t testing.TB, tab context.Context) *Witness {
	t.Helper()
	w := &Witness{}
	chromedp.ListenTarget(tab, func(event any) {
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
	require.NoError(t, chromedp.Run(tab, network.Enable(), log.Enable()))
	return w
}

// Clear forgets what there was.
func (w *Witness) Clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests, w.complaints = nil, nil
}

// Get returns what there was.
func (w *Witness) Get() (requests, complaints []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests), slices.Clone(w.complaints)
}
