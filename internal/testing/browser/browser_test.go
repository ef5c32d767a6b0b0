package browser

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
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

// views are the windows in which the tests open a report.
var views = []struct {
	name   string
	width  int64
	scheme string
}{
	{"light-1280", 1280, "light"}, {"dark-1280", 1280, "dark"}, {"light-375", 375, "light"}, {"light-320", 320, "light"}, {"dark-320", 320, "dark"},
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
					`[...document.querySelectorAll("svg[role]")].filter(s => s.getBoundingClientRect().width < 200).length`)
				require.Zero(t, small, "%s shows each chart large enough", view.name)
				require.Equal(t, map[string]string{"light": "rgb(244, 245, 247)", "dark": "rgb(16, 20, 26)"}[view.scheme],
					eval[string](t, tab, `getComputedStyle(document.body).backgroundColor`))
				screenshot(t, tab, view.name)
				require.Empty(t, breaches(t, tab), view.name)
			}
			requests, complaints := seen.get()
			require.Equal(t, []string{"file://" + file}, requests, "the page requests nothing")
			require.Empty(t, complaints)
		})
	}
}

// TestViews opens the page in windows of several sizes and keeps screenshots.
func TestViews(t *testing.T) {
	scenes := map[string]scene{
		"few":       {loops: 1, connections: 7, reaped: 2, writable: true, token: "s3cret", uptime: 75},
		"2":         {thorough: true, loops: 2, connections: 1000, reaped: 30, writable: true, token: "s3cret", uptime: 4000},
		"16":        {thorough: true, loops: 16, connections: 100_000, reaped: 1234, uptime: 90_000},
		"64":        {loops: 64, connections: 1_000_000, reaped: 123_456, writable: true, token: "s3cret", uptime: 900_000, status: "draining"},
		"empty":     {loops: 1, status: "starting"},
		"net":       {loops: 2, connections: 40, reaped: 3, uptime: 4000, net: true},
		"suspended": {loops: 2, connections: 1000, reaped: 30, uptime: 4000, outages: 1, suspended: true},
	}
	for name, s := range scenes {
		t.Run(name, func(t *testing.T) {
			f := serve(t, s)
			tab, seen := open(t, f.url+"/#token=s3cret")
			wait(t, tab, fmt.Sprintf(`document.querySelector("#connections").dataset.value === "%d"`, s.connections))
			if os.Getenv("IDLEWHEEL_PICTURES") != "" {
				fill(f, 30*time.Second)
			}
			for _, width := range []int64{320, 375, 768, 1280, 2560} {
				for _, scheme := range []string{"light", "dark"} {
					if !s.thorough && (scheme == "dark") != (width == 768 || width == 2560) {
						continue // one of the two is enough
					}
					view := fmt.Sprintf("%s-%d-%s", name, width, scheme)
					emulate(t, tab, width, map[bool]int64{true: 720, false: width * 10 / 16}[width < 1000], scheme)
					f.set(func(s *scene) { s.reaped += s.loops * 5; s.connections += s.loops })
					wait(t, tab, fmt.Sprintf(`document.querySelector("#reaped").dataset.value === "%d"`, f.get().reaped))
					time.Sleep(100 * time.Millisecond)
					assert.Empty(t, eval[[]string](t, tab, tooWide), view)
					assert.Less(t, eval[int](t, tab, `document.querySelector("#rings").clientHeight`), max(1100, int(width/2)), view)
					assert.Less(t, eval[int](t, tab, `document.body.clientHeight`), 5500, view)
					assert.Empty(t, eval[[]string](t, tab, tooFaint), view)
					assert.Empty(t, breaches(t, tab), view)
					screenshot(t, tab, view)
				}
			}
			assert.Empty(t, eval[[]string](t, tab, unnamed))
			_, complaints := seen.get()
			require.Empty(t, complaints)
		})
	}
}

// tooWide returns the elements that make the page wider than its window.
const tooWide = `document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("body *")]
	.filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".vh")).map(e => e.outerHTML.slice(0, 90))`

// tooFaint returns the text with a contrast below 4.5 to its background (WCAG 2.2, 1.4.3).
const tooFaint = `(() => {
	const parse = c => { const n = c.match(/[\d.]+/g).map(Number); return [n[0], n[1], n[2], n[3] ?? 1]; };
	const luminance = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
	const behind = e => {
		for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; }
		return [255, 255, 255, 1];
	};
	const bad = new Set(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		if (!walk.currentNode.data.trim() || e.closest("script, style, .vh, noscript, .stale .fades") || !e.checkVisibility()) continue;
		const style = getComputedStyle(e), a = luminance(parse(e instanceof SVGElement ? style.fill : style.color)), b = luminance(behind(e));
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < 4.5) bad.add(ratio.toFixed(2) + " " + walk.currentNode.data.trim().slice(0, 40));
	}
	return [...bad];
})()`

// unnamed returns elements without a name for a screen reader, and headings that skip a level.
const unnamed = `(() => {
	const bad = [];
	for (const e of document.querySelectorAll("input:not([hidden])")) if (!e.labels.length) bad.push("input " + e.name);
	for (const e of document.querySelectorAll("button, summary, a"))
		if (!(e.getAttribute("aria-label") ?? e.textContent).trim()) bad.push(e.outerHTML);
	for (const e of document.querySelectorAll("table")) if (!e.caption) bad.push("table " + e.id);
	for (const e of document.querySelectorAll("th")) if (!e.scope) bad.push("th " + e.textContent);
	for (const e of document.querySelectorAll("section"))
		if (!document.getElementById(e.getAttribute("aria-labelledby"))) bad.push(e.outerHTML.slice(0, 60));
	for (const e of document.querySelectorAll("[aria-describedby]"))
		for (const id of e.getAttribute("aria-describedby").split(" ")) if (!document.getElementById(id)) bad.push("no #" + id);
	let level = 0;
	for (const e of document.querySelectorAll("h1, h2, h3")) { if (e.tagName[1] > level + 1) bad.push(e.outerHTML); level = +e.tagName[1]; }
	const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
	if (new Set(ids).size !== ids.length) bad.push("ids twice");
	return bad;
})()`

const testToken = "0123456789abcdef0123456789abcdef"

// A command is echo-heartbeat in a process of its own.
type command struct {
	*exec.Cmd
	out syncbuf.Buffer
}

// start builds echo-heartbeat and starts it. The process is killed when the test ends.
func start(t *testing.T, args ...string) *command {
	t.Helper()
	path := filepath.Join(t.TempDir(), "echo-heartbeat")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/echo-heartbeat")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	c := &command{Cmd: exec.Command(path, args...)}
	c.Stdout, c.Stderr = &c.out, &c.out
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

// find waits for a line of output and returns the part in parentheses.
func (c *command) find(t *testing.T, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	require.Eventually(t, func() bool { return re.MatchString(c.out.String()) }, 10*time.Second, time.Millisecond,
		"%q is printed", pattern)
	return re.FindStringSubmatch(c.out.String())[1]
}

// interrupt sends an interrupt and expects exit code 0.
func (c *command) interrupt(t *testing.T) {
	t.Helper()
	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.NoError(t, c.Wait(), "%s", &c.out)
}

// dial opens connections that are closed when the test ends.
func dial(t *testing.T, addr string, n int) (all []net.Conn) {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		all = append(all, c)
	}
	return all
}

// idleRow is the row of a connection in the list of the most idle ones.
func idleRow(c net.Conn) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#idle tbody tr")].find(r => r.textContent.includes(%q))`, c.LocalAddr())
}

// TestThePageOfAServer opens the page of a real server. One of its connections becomes silent and
// is reaped, another is kicked on the page.
func TestThePageOfAServer(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte(testToken+"\n"), 0o600))
	server := start(t, "serve", "--addr", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--admin-token-file", token, "--read-timeout", "4s")
	addr, url := server.find(t, `listening on (\S+),`), server.find(t, `admin on (http://\S+/)`)
	living := dial(t, addr, 9)
	go func() {
		for ; t.Context().Err() == nil; time.Sleep(200 * time.Millisecond) {
			for _, c := range living {
				_, _ = c.Write([]byte("PING\n"))
			}
		}
	}()

	tab, seen := open(t, url)
	wait(t, tab, `document.querySelector("#status").textContent === "ready" && document.querySelector("#connections").dataset.value === "9"`)

	silent := dial(t, addr, 1)[0]
	wait(t, tab, idleRow(silent))
	wait(t, tab, `document.querySelector("#connections").dataset.value === "10"`)
	wait(t, tab, "!"+idleRow(silent))
	wait(t, tab, fmt.Sprintf(`[...document.querySelectorAll('#recent tbody tr[data-reason="read idle"]')].find(r => r.textContent.includes(%q))`,
		silent.LocalAddr()))
	wait(t, tab, `document.querySelector("#connections").dataset.value === "9" && document.querySelector("#reaped").dataset.value === "1"`)
	for _, scheme := range []string{"light", "dark"} {
		emulate(t, tab, 1280, 900, scheme)
		screenshot(t, tab, scheme)
	}

	victim := idleRow(living[0])
	wait(t, tab, victim)
	run(t, tab, chromedp.Evaluate(victim+`.querySelector("button.kick").click()`, nil))
	wait(t, tab, `document.querySelector("#message").textContent.includes("token")`)
	wait(t, tab, victim) // it is still there, after the answer
	_, complaints := seen.get()
	require.Len(t, complaints, 1, "the browser notes that a request was refused")
	require.Contains(t, complaints[0], "401")
	seen.clear()

	run(t, tab, chromedp.SendKeys("#token input, input#token", testToken+"\n"))
	run(t, tab, chromedp.Evaluate(victim+`.querySelector("button.kick").click()`, nil))
	wait(t, tab, "!"+victim)
	require.NoError(t, living[0].SetDeadline(time.Now().Add(10*time.Second)))
	got, err := io.ReadAll(living[0])
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(got), "closing: kicked\n"), "%q", got)
	_, complaints = seen.get()
	require.Empty(t, complaints)
	wait(t, tab, `document.querySelector('#recent tbody tr[data-reason="kicked"]')`)
	server.interrupt(t)
}

// TestTheDemoHasAPage runs the demo with a page and interrupts it.
func TestTheDemoHasAPage(t *testing.T) {
	demo := start(t, "demo", "--web", "--read-timeout", "1s", "--clients", "12")
	url := demo.find(t, `the page is at (\S+)`)
	tab, seen := open(t, url)
	wait(t, tab, `document.querySelector("#status").textContent === "ready" && document.querySelector("#connections").dataset.value > 2`)
	wait(t, tab, `document.querySelector("#reaped").dataset.value > 8`)
	demo.find(t, "(all 12 verdicts were right)")
	emulate(t, tab, 1280, 900, "light")
	screenshot(t, tab, "light")
	var address string
	run(t, tab, chromedp.Location(&address))
	require.NotContains(t, address, "token", "the page takes the token out of the address bar")
	_, complaints := seen.get()
	require.Empty(t, complaints)
	demo.interrupt(t)
	require.Contains(t, demo.out.String(), "interrupted")
}
