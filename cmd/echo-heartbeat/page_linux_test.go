package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/browser"
	"github.com/idlewheel/idlewheel/internal/syncbuf"
)

const testToken = "0123456789abcdef0123456789abcdef"

// serveWithPage runs serve with an admin page, and returns the addresses of both.
func serveWithPage(t *testing.T, flags ...string) (addr, page string) {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte(testToken+"\n"), 0o600))
	var out syncbuf.Buffer
	addr, _ = serveOn(t, &out, append(flags, "--admin", "127.0.0.1:0", "--admin-token-file", token)...)
	return addr, find(t, &out, `admin on (http://\S+/)`)
}

// find waits until something is printed, and returns the part in parentheses.
func find(t *testing.T, out *syncbuf.Buffer, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	require.Eventually(t, func() bool { return re.MatchString(out.String()) }, 10*time.Second, time.Millisecond, "%q is printed", pattern)
	return re.FindStringSubmatch(out.String())[1]
}

// await waits until an expression of JavaScript is true.
func await(t *testing.T, tab context.Context, expression string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(tab, 30*time.Second)
	defer cancel()
	require.NoError(t, chromedp.Run(ctx, chromedp.Poll("Boolean("+expression+")", nil, chromedp.WithPollingTimeout(0))), expression)
}

// picture keeps what a tab looks like as an artifact of the test.
func picture(t *testing.T, tab context.Context, scheme string) {
	t.Helper()
	var png []byte
	require.NoError(t, chromedp.Run(tab,
		emulation.SetDeviceMetricsOverride(1280, 900, 1, false),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.FullScreenshot(&png, 100)))
	require.NoError(t, os.WriteFile(filepath.Join(t.ArtifactDir(), scheme+".png"), png, 0o644))
}

// TestThePageOfAServer looks at a real server in a real browser: its connections, one that falls silent, and one that is kicked.
func TestThePageOfAServer(t *testing.T) {
	addr, url := serveWithPage(t, "--read-timeout", "4s")
	var living []net.Conn
	for range 9 {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer c.Close()
		living = append(living, c)
	}
	beating, stop := context.WithCancel(t.Context())
	beaten := make(chan struct{})
	go func() {
		defer close(beaten)
		for pause(beating, 200*time.Millisecond) {
			for _, c := range living {
				_, _ = c.Write([]byte("PING\n"))
			}
		}
	}()
	defer func() { stop(); <-beaten }()

	tab := browser.Start(t)
	seen := browser.Watch(t, tab)
	require.NoError(t, chromedp.Run(tab, chromedp.Navigate(url)))
	await(t, tab, `document.querySelector("#status").textContent === "ready" && document.querySelector("#connections").dataset.value === "9"`)

	silent, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer silent.Close()
	row := fmt.Sprintf(`[...document.querySelectorAll("#idle tbody tr")].find(r => r.textContent.includes(%q))`, silent.LocalAddr())
	await(t, tab, row)
	await(t, tab, `document.querySelector("#connections").dataset.value === "10"`)
	await(t, tab, "!"+row)
	await(t, tab, fmt.Sprintf(`[...document.querySelectorAll('#recent tbody tr[data-reason="read idle"]')].find(r => r.textContent.includes(%q))`,
		silent.LocalAddr()))
	await(t, tab, `document.querySelector("#connections").dataset.value === "9" && document.querySelector("#reaped").dataset.value === "1"`)
	for _, scheme := range []string{"light", "dark"} {
		picture(t, tab, scheme)
	}

	victim := fmt.Sprintf(`[...document.querySelectorAll("#idle tbody tr")].find(r => r.textContent.includes(%q))`, living[0].LocalAddr())
	await(t, tab, victim)
	require.NoError(t, chromedp.Run(tab, chromedp.Evaluate(victim+`.querySelector("button.kick").click()`, nil)))
	await(t, tab, `document.querySelector("#message").textContent.includes("token")`)
	await(t, tab, victim) // it is still there, after the answer
	_, complaints := seen.Get()
	require.Len(t, complaints, 1, "the browser notes that a request was refused")
	require.Contains(t, complaints[0], "401")
	seen.Clear()

	require.NoError(t, chromedp.Run(tab, chromedp.SendKeys("#token input, input#token", testToken+"\n")))
	require.NoError(t, chromedp.Run(tab, chromedp.Evaluate(victim+`.querySelector("button.kick").click()`, nil)))
	await(t, tab, "!"+victim)
	require.NoError(t, living[0].SetDeadline(time.Now().Add(10*time.Second)))
	got, err := io.ReadAll(living[0])
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(got), "closing: kicked\n"), "%q", got)
	requests, complaints := seen.Get()
	require.Empty(t, complaints)
	for _, r := range requests {
		require.True(t, strings.HasPrefix(r, url), "%s is no request to the server", r)
	}
	await(t, tab, `document.querySelector('#recent tbody tr[data-reason="kicked"]')`)
}

// TestTheDemoHasAPage runs the demo with a page until it is interrupted.
func TestTheDemoHasAPage(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs syncbuf.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"demo", "--web", "--read-timeout", "1s", "--clients", "12"}, &out, &errs)
	}()
	url := find(t, &out, `the page is at (\S+)`)
	tab := browser.Start(t)
	seen := browser.Watch(t, tab)
	require.NoError(t, chromedp.Run(tab, chromedp.Navigate(url)))
	await(t, tab, `document.querySelector("#status").textContent === "ready" && document.querySelector("#connections").dataset.value > 2`)
	await(t, tab, `document.querySelector("#reaped").dataset.value > 8`)
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "all 12 verdicts were right") }, 20*time.Second, 10*time.Millisecond)
	picture(t, tab, "light")
	var address string
	require.NoError(t, chromedp.Run(tab, chromedp.Location(&address)))
	require.NotContains(t, address, "token", "it is taken out of the address bar")
	_, complaints := seen.Get()
	require.Empty(t, complaints)
	cancel()
	require.Zero(t, <-code, "%s\n%s", &out, &errs)
	require.Contains(t, out.String(), "interrupted")
}

// TestTheAdminOfServeSpeaksOfFlags asks it for nonsense, as an operator may.
func TestTheAdminOfServeSpeaksOfFlags(t *testing.T) {
	_, url := serveWithPage(t, "--read-timeout", "4s")
	for body, want := range map[string]string{
		`{"read-timeout":"-1s"}`:                  "read-timeout is -1s: set a positive duration such as 60s, or 0 for none",
		`{"read-timeout":"0s"}`:                   "no limit is set",
		`{"read-timeout":"1ms"}`:                  "tick is 100ms, longer than read-timeout of 1ms",
		`{"max-age-grace":"1s"}`:                  "max-age-grace is 1s without max-age",
		`{"heartbeat":"1s"}`:                      `"heartbeat" cannot be changed here: take read-timeout,`,
		`{"write-timeout":"1s","all-timeout":""}`: `all-timeout is "": write a duration such as "30s"`,
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", url+"api/timeouts", strings.NewReader(body))
		require.NoError(t, err)
		req.Close = true
		req.Header.Set("Authorization", "Bearer "+testToken)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		var answer struct{ Error string }
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
		resp.Body.Close()
		require.Equal(t, http.StatusBadRequest, resp.StatusCode)
		require.Contains(t, answer.Error, want)
		require.NotContains(t, answer.Error, "Config")
	}
}
