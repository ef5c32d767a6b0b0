package browser

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// root is the folder of the repository.
const root = "../../.."

// startBrowser starts a browser and returns the context of its one tab. The browser is stopped when
// the test ends, and after three minutes at the latest. Without Chromium the test fails in CI and
// is skipped elsewhere.
func startBrowser(t testing.TB) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" && os.Getenv("CI") == "" {
		t.Skip("Chromium is not installed")
	}
	require.NotEmpty(t, path, "CI needs Chromium")
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

// A witness records the requests and the complaints of a tab. Safe for concurrent use.
type witness struct {
	mu         sync.Mutex
	requests   []string // guarded by mu
	complaints []string // guarded by mu
}

// watch records the requests and complaints of a tab from now on.
func watch(t testing.TB, tab context.Context) *witness {
	t.Helper()
	w := &witness{}
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

// clear forgets everything recorded so far.
func (w *witness) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests, w.complaints = nil, nil
}

// get returns everything recorded since the last clear.
func (w *witness) get() (requests, complaints []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests), slices.Clone(w.complaints)
}

func run(t *testing.T, tab context.Context, actions ...chromedp.Action) {
	t.Helper()
	require.NoError(t, chromedp.Run(tab, actions...))
}

// eval returns the value of an expression of JavaScript. It waits for a promise.
func eval[T any](t *testing.T, tab context.Context, script string) (value T) {
	t.Helper()
	run(t, tab, chromedp.Evaluate(script, &value, func(p *runtime.EvaluateParams) *runtime.EvaluateParams {
		return p.WithAwaitPromise(true)
	}))
	return value
}

// wait waits until a condition holds in the page, for at most 30 seconds.
func wait(t *testing.T, tab context.Context, condition string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if eval[bool](t, tab, "!!("+condition+")") {
			return
		}
	}
	require.Fail(t, "the condition does not hold", "%s\n%s", condition, eval[string](t, tab, `document.body.innerText`))
}

// emulate gives the page a window and a color scheme.
func emulate(t *testing.T, tab context.Context, width, height int64, scheme string) {
	t.Helper()
	run(t, tab, emulation.SetDeviceMetricsOverride(width, height, 1, false),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
}

// screenshot keeps a picture of the whole page as an artifact of the test.
func screenshot(t *testing.T, tab context.Context, name string) {
	t.Helper()
	var png []byte
	run(t, tab, chromedp.FullScreenshot(&png, 100))
	require.NoError(t, os.WriteFile(filepath.Join(t.ArtifactDir(), name+".png"), png, 0o644))
}
