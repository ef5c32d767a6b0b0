package browser

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/admin"
	"github.com/idlewheel/idlewheel/idlenet"
)

// TestThePageShowsItsServer opens the page of a server with two event loops.
func TestThePageShowsItsServer(t *testing.T) {
	f := serve(t, scene{loops: 2, connections: 1000, reaped: 3})
	tab, seen := open(t, f.url)
	wait(t, tab, `document.querySelector("#status").textContent === "ready"`)
	require.Equal(t, "1000", eval[string](t, tab, `document.querySelector("#connections").dataset.value`))
	require.Equal(t, "1,000", eval[string](t, tab, `document.querySelector("#connections").textContent`))
	require.Equal(t, "3", eval[string](t, tab, `document.querySelector("#reaped").dataset.value`))
	require.Equal(t, []string{"1 500", "2 500"},
		eval[[]string](t, tab, `[...document.querySelectorAll(".ring")].map(r => r.dataset.loop + " " + r.dataset.connections)`))
	require.Regexp(t, `^Loop 1: 500 connections. Next checks: \d+ within 26 s, .* Reaped so far: 2.$`,
		eval[string](t, tab, `document.querySelector(".ring .vh").textContent`))
	require.Equal(t, "idlewheel 127.0.0.1:7000", eval[string](t, tab, `document.title`))
	require.Equal(t, 20, eval[int](t, tab, `document.querySelectorAll("#idle tbody tr[data-id]").length`))
	require.Equal(t, 3, eval[int](t, tab, `document.querySelectorAll('#recent tbody tr[data-reason="read idle"]').length`))
	require.Equal(t, "30s", eval[string](t, tab, `document.querySelector("#timeouts [name=read-timeout]").value`))
	wait(t, tab, `Math.abs(document.querySelector("#messages").dataset.value - 250) < 25`)
	require.Greater(t, eval[int](t, tab, `new Set([...document.querySelectorAll("canvas")].map(c => {
		const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
		return d.some(x => x) ? c : 0;
	})).size`), 3, "every canvas is drawn on")
	require.Equal(t, 2, eval[int](t, tab, `document.querySelectorAll('.ring[data-particles="0"]').length`),
		"what was reaped before does not fly")
	requests, complaints := seen.get()
	require.Empty(t, complaints)
	require.ElementsMatch(t, []string{f.url + "/", f.url + "/api/events"}, requests)
}

// TestARingIsDrawnInItsSectors has a ring of four sectors, which fill its left and its right half.
func TestARingIsDrawnInItsSectors(t *testing.T) {
	_, tab := show(t, scene{loops: 1, connections: 400, few: true}, `document.querySelector(".ring")`)
	wait(t, tab, `(() => {
		const c = document.querySelector(".ring canvas"), s = c.width, d = c.getContext("2d").getImageData(0, 0, s, s).data;
		const blue = [0, 0];
		for (let y = 0; y < s; y++) for (let x = 0; x < s; x++) {
			const i = 4 * (y * s + x);
			if (d[i + 3] === 255 && d[i + 2] - d[i] > 60) blue[x < s / 2 ? 0 : 1]++;
		}
		return blue[0] > 1000 && Math.abs(blue[0] - blue[1]) < blue[0] / 20;
	})()`)
}

func TestThePageReportsABlockedLoopAndKeepsItsRing(t *testing.T) {
	f, tab := show(t, scene{loops: 2, connections: 400}, `document.querySelectorAll(".ring").length === 2`)
	f.set(func(s *scene) { s.blocked = true })
	wait(t, tab, `document.querySelector("#status").textContent === "blocked" && document.querySelector("#retry").textContent.includes("does not answer")`)
	require.Equal(t, 2, eval[int](t, tab, `document.querySelectorAll(".ring").length`))
	f.set(func(s *scene) { s.blocked = false })
	wait(t, tab, `document.querySelector("#status").textContent === "ready" && document.querySelector("#retry").textContent === ""`)
}

// TestThePageTellsThatVerdictsAreSuspended has a server that hears nothing for a while.
func TestThePageTellsThatVerdictsAreSuspended(t *testing.T) {
	f, tab := show(t, scene{loops: 2, connections: 400}, `document.querySelector("#outages").dataset.value === "0"`)
	require.Equal(t, "none", eval[string](t, tab, `document.querySelector("#away").textContent`))
	const shown = `document.querySelector("#suspended").checkVisibility()`
	require.False(t, eval[bool](t, tab, shown))
	f.set(func(s *scene) { s.suspended = true })
	wait(t, tab, shown)
	require.Contains(t, eval[string](t, tab, `document.querySelector("#suspended").innerText`), "Silent are: remote 192.0.2.0/24 (13 s)")
	require.Equal(t, "status", eval[string](t, tab, `document.querySelector("#suspended").parentElement.getAttribute("role")`),
		"a screen reader tells it")
	f.set(func(s *scene) { s.suspended, s.outages = false, 1 })
	wait(t, tab, `!`+shown)
	require.Equal(t, "1", eval[string](t, tab, `document.querySelector("#outages").textContent`))
	require.Equal(t, "8.2 s in all", eval[string](t, tab, `document.querySelector("#away").textContent`))
	require.Contains(t, eval[string](t, tab, `document.querySelector("#outages-tile").title`), "289 verdicts were postponed")
}

func TestARowEndsWithItsConnection(t *testing.T) {
	f, tab := show(t, scene{loops: 1, connections: 3}, `document.querySelectorAll("#idle tbody tr").length === 3`)
	f.set(func(s *scene) { s.connections, s.gone = 2, "1-1-1001" })
	wait(t, tab, `document.querySelectorAll("#idle tbody tr").length === 2 && !document.querySelector('[data-id="1-1-1001"]')`)
	require.Equal(t, []string{"1-0-1000", "1-2-1002"},
		eval[[]string](t, tab, `[...document.querySelectorAll("#idle tbody tr")].map(r => r.dataset.id)`))
	f.set(func(s *scene) { s.connections = 0 })
	wait(t, tab, `!document.querySelector("#idle-none").hidden && document.querySelector("#idle").hidden`)
}

// TestRowsStandStillUnderThePointer closes the connection of the row above the pointer. The row
// below it must not move, so that a click kicks the intended connection.
func TestRowsStandStillUnderThePointer(t *testing.T) {
	f, tab := show(t, scene{loops: 1, connections: 3}, `document.querySelectorAll("#idle tbody tr").length === 3`)
	at := eval[[]float64](t, tab, `(() => {
		const row = document.querySelector('[data-id="1-2-1002"]');
		row.scrollIntoView({block: "center"});
		const box = row.getBoundingClientRect();
		return [box.x + 30, box.y + 5, box.y + scrollY];
	})()`)
	run(t, tab, input.DispatchMouseEvent(input.MouseMoved, at[0], at[1]))
	f.set(func(s *scene) { s.connections, s.gone = 2, "1-1-1001" })
	wait(t, tab, `document.querySelector("#idle .gone") && !document.querySelector('[data-id="1-1-1001"]')`)
	require.Equal(t, at[2], eval[float64](t, tab, `document.querySelector('[data-id="1-2-1002"]').getBoundingClientRect().y + scrollY`))
	run(t, tab, input.DispatchMouseEvent(input.MouseMoved, 5, 5))
	wait(t, tab, `document.querySelectorAll("#idle tbody tr").length === 2`)
}

// TestKick kicks connections and gets each possible answer.
func TestKick(t *testing.T) {
	const first = `document.querySelector('[data-id="1-0-1000"] button.kick').click()`
	const message = `document.querySelector("#message").textContent`
	f, tab := show(t, scene{loops: 1, connections: 3, writable: true, token: "s3cret+/="}, `document.querySelector("button.kick")`)

	run(t, tab, chromedp.Evaluate(first, nil))
	wait(t, tab, message+`.startsWith("The token is missing.")`)
	require.Equal(t, "secret", eval[string](t, tab, `document.activeElement.id`))
	run(t, tab, chromedp.SendKeys("#token input", "wrong\r", chromedp.ByQuery), chromedp.Evaluate(first, nil))
	wait(t, tab, message+`.startsWith("The token is wrong.")`)

	f.posts() // drop the requests so far
	run(t, tab, chromedp.Evaluate(fmt.Sprintf(`location.hash = "token=" + encodeURIComponent(%q)`, "s3cret+/="), nil))
	wait(t, tab, `location.hash === "" && sessionStorage.getItem("idlewheel-token") === "s3cret+/="`)
	require.Equal(t, f.url+"/", eval[string](t, tab, `location.href`))
	wait(t, tab, `document.querySelector("#status").textContent === "ready"`)
	run(t, tab, chromedp.Evaluate(first, nil))
	wait(t, tab, message+` === "Kicked 10.0.0.1:4000."`)
	wait(t, tab, `!document.querySelector('[data-id="1-0-1000"]')`)
	require.Equal(t, []post{{"/api/connections/1-0-1000/kick", "Bearer s3cret+/=", "application/json", ""}}, f.posts())

	f.set(func(s *scene) { s.missing = true })
	run(t, tab, chromedp.Evaluate(`document.querySelector('[data-id="1-1-1001"] button.kick').click()`, nil))
	wait(t, tab, message+` === "10.0.0.1:4001 was closed already."`)
	f.set(func(s *scene) { s.forbidden = true })
	run(t, tab, chromedp.Evaluate(`document.querySelector('[data-id="1-2-1002"] button.kick').click()`, nil))
	wait(t, tab, message+` === "The server refused the request: not from here"`)
	require.Len(t, eval[string](t, tab, `document.querySelector("#message").getAttribute("role")`), len("status"))
}

// TestTheKeyboardIsEnough goes through the page with the Tab key. Each stop shows that it has the
// focus, and Enter kicks a connection, opens the limits, and changes a timeout.
func TestTheKeyboardIsEnough(t *testing.T) {
	f := serve(t, scene{loops: 1, connections: 2, writable: true, token: "s3cret"})
	tab, _ := open(t, f.url+"/#token=s3cret")
	wait(t, tab, `document.querySelector("button.kick")`)
	const focused = `(() => {
		const e = document.activeElement, style = getComputedStyle(e);
		if (style.outlineStyle === "none" && style.boxShadow === "none") return "invisible: " + e.outerHTML.slice(0, 80);
		return e.id || e.className || e.tagName.toLowerCase();
	})()`
	stop := func(name string) {
		for range 60 {
			run(t, tab, chromedp.KeyEvent(kb.Tab))
			got := eval[string](t, tab, focused)
			require.NotContains(t, got, "invisible")
			if got == name {
				return
			}
		}
		t.Fatalf("no stop is %s", name)
	}
	stop("skip")
	run(t, tab, chromedp.KeyEvent(kb.Enter))
	wait(t, tab, `document.activeElement.id === "main"`)
	stop("read-timeout")
	run(t, tab, chromedp.KeyEvent("45s"), chromedp.KeyEvent(kb.Enter)) // Tab has selected the value
	wait(t, tab, `document.querySelector("#message").textContent === "Changed: read-timeout 45s."`)
	stop("summary")
	run(t, tab, chromedp.KeyEvent(kb.Enter))
	wait(t, tab, `document.querySelector("details:has(#limits)").open`)
	stop("kick")
	run(t, tab, chromedp.KeyEvent(kb.Enter))
	wait(t, tab, `document.querySelector("#message").textContent.startsWith("Kicked ")`)
}

func TestAServerWithoutATokenCannotBeChanged(t *testing.T) {
	_, tab := show(t, scene{loops: 1, connections: 3}, `document.querySelector("button.kick")`)
	require.Zero(t, eval[int](t, tab, `document.querySelectorAll(
		"button.kick:enabled, #timeouts input:enabled, #timeouts button:enabled").length`))
	require.Contains(t, eval[string](t, tab, `document.body.innerText`), "the server was started without an admin token")
	require.False(t, eval[bool](t, tab, `document.querySelector("#token").checkVisibility()`), "there is nothing to enter")
}

// TestWhatIsNotKnownIsNotShown has a real server on package net, which has just begun.
func TestWhatIsNotKnownIsNotShown(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln, err := idlenet.Listen(inner, idlenet.Config{ReadTimeout: time.Minute})
	require.NoError(t, err)
	defer ln.Close()
	for range 9 {
		c, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		served, err := ln.Accept()
		require.NoError(t, err)
		defer served.Close()
	}
	handler, err := admin.New(admin.Config{Reaper: ln, Open: true})
	require.NoError(t, err)
	site := httptest.NewServer(handler)
	defer site.Close()
	defer site.CloseClientConnections() // the page keeps a stream

	tab, _ := open(t, site.URL)
	wait(t, tab, `document.querySelector("#connections").dataset.value === "9"`)
	text := eval[string](t, tab, `document.body.innerText`)
	require.NotRegexp(t, "(?i)messages|event loop|loop 1|queued|pressure|heap|read idle|token:", text)
	require.Contains(t, text, "wheel 1")
	require.Contains(t, text, "Not enough is known yet about a timeout of 30s")
	require.False(t, eval[bool](t, tab, `document.querySelector("#trials svg").checkVisibility()`), "an empty chart")
	screenshot(t, tab, "idlenet")
}

// TestAWheelWithoutConnectionsLeavesNoHole has servers without any connection, of which the one on
// package net has its wheels from the beginning.
func TestAWheelWithoutConnectionsLeavesNoHole(t *testing.T) {
	for _, s := range []scene{{}, {loops: 2, net: true}} {
		_, tab := show(t, s, `document.querySelector("#connections").dataset.value === "0"`)
		require.Contains(t, eval[string](t, tab, `document.body.innerText`), "no connection has been opened")
		require.Less(t, eval[int](t, tab, `document.querySelector(".wheels").clientHeight`), 200)
		require.Zero(t, eval[int](t, tab, `document.querySelector("#reasons").clientHeight`), "reasons at zero are hidden")
	}
}

// TestThePageExplainsItsFigures opens the explanations, and has servers with and without a timeout
// under pressure.
func TestThePageExplainsItsFigures(t *testing.T) {
	for least, want := range map[string]string{
		"0s":  "Used part of each resource.",
		"15s": "Used part of each resource. Above the mark, idle timeouts become shorter, down to 15s.",
	} {
		_, tab := show(t, scene{loops: 1, connections: 3, pressure: least}, `document.querySelector("#connections").dataset.value === "3"`)
		require.Equal(t, want, eval[string](t, tab, `document.querySelector("#pressure-hint").textContent`))
		run(t, tab, chromedp.Click("details.words summary", chromedp.ByQuery))
		words := eval[string](t, tab, `document.querySelector("details.words").innerText`)
		for _, word := range []string{"Spared:", "Clock delay:", "Loop delay:", "Mean lateness:", "Outages:"} {
			require.Contains(t, words, word)
		}
		tokens := strings.Count(eval[string](t, tab, `document.body.innerText`), "without an admin token")
		require.Equal(t, 1, tokens, "the notice stands once")
	}
}

// TestThePageBeginsWithTheLastMinute has a server that keeps its samples.
func TestThePageBeginsWithTheLastMinute(t *testing.T) {
	s := scene{loops: 1, connections: 50, uptime: 100}
	for i := range 60 {
		s.minute = append(s.minute, []float64{40 + float64(i), 30, 7 * float64(i), 0})
	}
	_, tab := show(t, s, `document.querySelector("#connections").dataset.value === "50"`)
	require.Regexp(t, "low 30, high 50", eval[string](t, tab, `document.querySelector(".chart").textContent`))
}

// TestAPageThatNeedsAToken has a server that requires a token for reading.
func TestAPageThatNeedsAToken(t *testing.T) {
	f, tab := show(t, scene{loops: 1, connections: 3, writable: true, token: "s3cret", private: true}, `document.querySelector("#retry").textContent === "a token is needed" && document.activeElement.id === "secret"`)
	require.Equal(t, "disconnected", eval[string](t, tab, `document.querySelector("#status").textContent`))
	run(t, tab, chromedp.SendKeys("#token input", "s3cret\r", chromedp.ByQuery))
	wait(t, tab, `document.querySelector("#status").textContent === "ready"`)
	run(t, tab, chromedp.Navigate(f.url+"/"))
	// The page has kept the token.
	wait(t, tab, `document.querySelector("#status").textContent === "ready"`)

	other, _ := open(t, f.url+"/#token=s3cret")
	wait(t, other, `document.querySelector("#status").textContent === "ready" && location.hash === ""`)
}

func TestTimeouts(t *testing.T) {
	f := serve(t, scene{loops: 1, connections: 3, writable: true, token: "s3cret"})
	tab, _ := open(t, f.url+"/#token=s3cret")
	wait(t, tab, `document.querySelector("#timeouts [name=read-timeout]").value === "30s"`)
	put := func(name, value string) {
		run(t, tab, chromedp.Evaluate(fmt.Sprintf(`document.querySelector("#timeouts [name=%s]").value = %q`, name, value), nil))
	}
	submit := chromedp.Evaluate(`document.querySelector("#timeouts button").click()`, nil)

	put("all-timeout", "soon")
	run(t, tab, submit)
	wait(t, tab, `document.querySelector("#all-timeout-error").textContent === 'all-timeout: time: invalid duration "soon"'`)
	require.Equal(t, "all-timeout", eval[string](t, tab, `document.activeElement.name`))
	require.Equal(t, "", eval[string](t, tab, `document.querySelector("#read-timeout-error").textContent`))
	require.Equal(t, "true", eval[string](t, tab, `document.querySelector("#all-timeout").getAttribute("aria-invalid")`))

	f.posts()
	put("all-timeout", "0s")
	put("read-timeout", "45s")
	run(t, tab, submit)
	wait(t, tab, `document.querySelector("#message").textContent === "Changed: read-timeout 45s."`)
	require.Equal(t, []post{{"/api/timeouts", "Bearer s3cret", "application/json", `{"read-timeout":"45s"}`}}, f.posts())
	wait(t, tab, `document.querySelector("#read-timeout-now").textContent === "now 45s"`)
	require.Equal(t, "", eval[string](t, tab, `document.querySelector("#all-timeout-error").textContent`))

	put("write-timeout", "7s") // an unsent edit survives a change by another operator
	f.set(func(s *scene) { s.limits = object{"read-timeout": "50s", "write-timeout": "1s", "all-timeout": "0s"} })
	wait(t, tab, `document.querySelector("#read-timeout").value === "50s" &&
		document.querySelector("#write-timeout-now").textContent === "now 1s"`)
	require.Equal(t, "7s", eval[string](t, tab, `document.querySelector("#write-timeout").value`))
}

// TestNothingIsMarkup has markup in every text of a peer or a server.
func TestNothingIsMarkup(t *testing.T) {
	const evil = `<img src=x onerror="document.title='owned'"><b>bold</b>`
	f := serve(t, scene{loops: 1, connections: 3, reaped: 2, evil: evil})
	tab, seen := open(t, f.url)
	wait(t, tab, `document.querySelectorAll("#idle tbody tr").length === 3 && document.querySelectorAll("#recent tbody tr").length > 0`)
	require.Equal(t, evil, eval[string](t, tab, `document.querySelector("#idle tbody th").textContent`))
	require.Equal(t, evil, eval[string](t, tab, `document.querySelector("#recent tbody th").textContent`))
	require.Equal(t, evil, eval[string](t, tab, `document.querySelector("#recent td.why").textContent`))
	require.Zero(t, eval[int](t, tab, `document.querySelectorAll("img, td b, th b").length`))
	require.Equal(t, "idlewheel "+evil, eval[string](t, tab, `document.title`))
	_, complaints := seen.get()
	require.Empty(t, complaints)
}

// TestReconnects stops the server and starts another one with smaller counters.
func TestReconnects(t *testing.T) {
	f, tab := show(t, scene{loops: 2, connections: 1000, reaped: 500, uptime: 5000}, `document.querySelector("#status").textContent === "ready"`)
	f.stop()
	wait(t, tab, `document.querySelector("#status").textContent === "disconnected"`)
	require.Regexp(t, `next try in [12] s`, eval[string](t, tab, `document.querySelector("#retry").textContent`))
	require.Equal(t, "1000", eval[string](t, tab, `document.querySelector("#connections").dataset.value`), "the last figures stay")
	f.set(func(s *scene) { s.loops, s.connections, s.reaped, s.uptime = 1, 7, 1, 0 })
	run(t, tab, chromedp.Evaluate(`window.odd = []; new MutationObserver(() => {
		const rate = document.querySelector("#messages").textContent + " " + document.querySelector("#reaped-rate").textContent;
		if (!/^(–|\d\.\d|\d{1,3}) (–|0) per second$/.test(rate)) odd.push(rate);
		for (const r of document.querySelectorAll(".ring")) if (r.dataset.particles > 0) odd.push("particles");
	}).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true})`, nil))
	f.start(t)
	wait(t, tab, `document.querySelector("#status").textContent === "ready" && document.querySelector("#connections").dataset.value === "7"`)
	require.Equal(t, "", eval[string](t, tab, `document.querySelector("#retry").textContent`))
	wait(t, tab, `document.querySelectorAll(".ring").length === 1`)
	time.Sleep(700 * time.Millisecond)
	require.Empty(t, eval[[]string](t, tab, `odd`))
	require.Equal(t, "now 7, low 7, high 7", eval[string](t, tab, `document.querySelector(".chart figcaption span").textContent`),
		"the charts start again")
}

// TestARefusedViewerIsToldWhy has a viewer that is refused, and one that loses its place.
func TestARefusedViewerIsToldWhy(t *testing.T) {
	f, tab := show(t, scene{loops: 1, connections: 3, crowded: "32 viewers already"}, `/^32 viewers already; next try in \d s$/.test(document.querySelector("#retry").textContent)`)
	f.set(func(s *scene) { s.crowded = "" })
	wait(t, tab, `document.querySelector("#status").textContent === "ready"`)
	f.set(func(s *scene) { s.ended, s.crowded = "another took the place", "32 viewers already" })
	wait(t, tab, `/^another took the place; next try in \d s$/.test(document.querySelector("#retry").textContent)`)
}

// TestAHiddenPageDisconnects hides the page, which must leave the server alone until it is visible.
func TestAHiddenPageDisconnects(t *testing.T) {
	f, tab := show(t, scene{loops: 1, connections: 3}, `document.querySelector("#status").textContent === "ready"`)
	require.Equal(t, 1, f.viewers())
	hide := func(hidden bool) {
		run(t, tab, chromedp.Evaluate(fmt.Sprintf(`Object.defineProperty(document, "hidden", {configurable: true, get: () => %v});
			document.dispatchEvent(new Event("visibilitychange"))`, hidden), nil))
	}
	hide(true)
	require.Eventually(t, func() bool { return f.viewers() == 0 }, 5*time.Second, 10*time.Millisecond)
	time.Sleep(1500 * time.Millisecond)
	require.Zero(t, f.viewers(), "it does not try again")
	hide(false)
	require.Eventually(t, func() bool { return f.viewers() == 1 }, 5*time.Second, 10*time.Millisecond)
	wait(t, tab, `document.querySelector("#status").textContent === "ready"`)
}

// show opens the page of a server with a scene, and waits for a condition.
func show(t *testing.T, s scene, condition string) (*fake, context.Context) {
	t.Helper()
	f := serve(t, s)
	tab, _ := open(t, f.url)
	wait(t, tab, condition)
	return f, tab
}

// open opens a page in a browser of its own, with media features.
func open(t *testing.T, url string, features ...*emulation.MediaFeature) (context.Context, *witness) {
	t.Helper()
	ctx := startBrowser(t)
	seen := watch(t, ctx)
	run(t, ctx, emulation.SetEmulatedMedia().WithFeatures(features),
		emulation.SetDeviceMetricsOverride(1280, 900, 1, false), chromedp.Navigate(url))
	t.Cleanup(func() {
		requests, _ := seen.get()
		server, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
		for _, r := range requests {
			require.Regexp(t, "^(data:|http://"+server+"/)", r, "the page requests nothing from another server")
		}
	})
	return ctx, seen
}
