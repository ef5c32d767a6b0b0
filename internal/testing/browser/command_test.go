package browser

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

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

// serveWithPage runs serve with an admin page and returns the addresses of both.
func serveWithPage(t *testing.T, flags ...string) (c *command, addr, page string) {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte(testToken+"\n"), 0o600))
	c = start(t, append([]string{"serve", "--addr", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--admin-token-file", token}, flags...)...)
	return c, c.find(t, `listening on (\S+),`), c.find(t, `admin on (http://\S+/)`)
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

// sendHeartbeats sends a message on each connection five times a second until stop is called.
func sendHeartbeats(t *testing.T, all []net.Conn) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			for _, c := range all {
				_, _ = c.Write([]byte("PING\n"))
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	}()
	return func() { cancel(); <-stopped }
}

// idleRow is the row of a connection in the list of the most idle ones.
func idleRow(c net.Conn) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#idle tbody tr")].find(r => r.textContent.includes(%q))`, c.LocalAddr())
}

// TestThePageOfAServer opens the page of a real server. One of its connections becomes silent and
// is reaped, another is kicked on the page.
func TestThePageOfAServer(t *testing.T) {
	server, addr, url := serveWithPage(t, "--read-timeout", "4s")
	living := dial(t, addr, 9)
	stop := sendHeartbeats(t, living)
	defer stop()

	tab := startBrowser(t)
	seen := watch(t, tab)
	run(t, tab, chromedp.Navigate(url))
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
	requests, complaints := seen.get()
	require.Empty(t, complaints)
	for _, r := range requests {
		require.True(t, strings.HasPrefix(r, url), "%s is no request to the server", r)
	}
	wait(t, tab, `document.querySelector('#recent tbody tr[data-reason="kicked"]')`)
	server.interrupt(t)
}

// TestTheDemoHasAPage runs the demo with a page and interrupts it.
func TestTheDemoHasAPage(t *testing.T) {
	demo := start(t, "demo", "--web", "--read-timeout", "1s", "--clients", "12")
	url := demo.find(t, `the page is at (\S+)`)
	tab := startBrowser(t)
	seen := watch(t, tab)
	run(t, tab, chromedp.Navigate(url))
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
