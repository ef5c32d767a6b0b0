package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/admin/page"
)

var reasons = []string{
	"read idle", "write idle", "all idle", "no first byte", "no handshake", "write stall", "over limit", "below min rate", "heartbeat timeout", "max age",
	"drained", "kicked", "shed",
}

type object = map[string]any

// TestThePageShowsItsServer opens the page of a server with two event loops.
func TestThePageShowsItsServer(t *testing.T) {
	f := serve(t, scene{loops: 2, connections: 1000, reaped: 3})
	tab, seen := open(t, f)
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

// TestTheWheelTurns checks that the hand moves between frames.
func TestTheWheelTurns(t *testing.T) {
	f := serve(t, scene{loops: 1, connections: 100})
	tab, _ := open(t, f)
	wait(t, tab, `document.querySelector(".ring")`)
	turns := eval[int](t, tab, `new Promise(done => {
		const pictures = new Set(), hand = document.querySelectorAll(".ring canvas")[1];
		const from = performance.now(), look = () => {
			pictures.add(hand.toDataURL());
			if (performance.now() - from < 1500) setTimeout(look, 20); else done(pictures.size);
		};
		look();
	})`)
	require.Greater(t, turns, 8, "places of the hand in 1.5 s, with 6 frames")
	f.stop()
	wait(t, tab, `document.querySelector("#status").textContent === "disconnected"`)
	require.Equal(t, 0, eval[int](t, tab, `new Promise(done => {
		const draw = window.requestAnimationFrame;
		let n = 0;
		window.requestAnimationFrame = f => { n++; return draw(f); };
		setTimeout(() => { n = 0; }, 2000); // particles and the hand have stopped
		setTimeout(() => done(n), 2600);
	})`), "frames are drawn while nothing changes")
}

// TestReapedConnectionsFly counts the particles that fly out of a ring: some, and at most 40.
func TestReapedConnectionsFly(t *testing.T) {
	for _, motion := range []string{"no-preference", "reduce"} {
		t.Run(motion, func(t *testing.T) {
			f := serve(t, scene{loops: 1, connections: 1000})
			tab, _ := open(t, f, &emulation.MediaFeature{Name: "prefers-reduced-motion", Value: motion})
			wait(t, tab, `document.querySelector("#reaped").dataset.value === "0"`)
			run(t, tab, chromedp.Evaluate(`window.most = 0; new MutationObserver(() => {
				most = Math.max(most, document.querySelector(".ring").dataset.particles);
			}).observe(document.querySelector(".ring"), {attributes: true})`, nil))
			for reaped := 300; reaped <= 1200; reaped += 300 {
				f.set(func(s *scene) { s.connections, s.reaped = 1000-reaped/2, reaped })
				wait(t, tab, fmt.Sprintf(`document.querySelector("#reaped").dataset.value === "%d"`, reaped))
			}
			time.Sleep(500 * time.Millisecond)
			most := eval[int](t, tab, `most`)
			if motion == "reduce" {
				require.Zero(t, most)
				return
			}
			require.Greater(t, most, 5)
			require.LessOrEqual(t, most, 40)
			wait(t, tab, `document.querySelector(".ring").dataset.particles === "0"`)
		})
	}
}

// TestARingIsDrawnInItsSectors has a ring of four sectors, which fill its left and its right half.
func TestARingIsDrawnInItsSectors(t *testing.T) {
	f := serve(t, scene{loops: 1, connections: 400, few: true})
	tab, _ := open(t, f)
	wait(t, tab, `document.querySelector(".ring")`)
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
	f := serve(t, scene{loops: 2, connections: 400})
	tab, _ := open(t, f)
	wait(t, tab, `document.querySelectorAll(".ring").length === 2`)
	f.set(func(s *scene) { s.blocked = true })
	wait(t, tab, `document.querySelector("#status").textContent === "blocked" && document.querySelector("#retry").textContent.includes("does not answer")`)
	require.Equal(t, 2, eval[int](t, tab, `document.querySelectorAll(".ring").length`))
	f.set(func(s *scene) { s.blocked = false })
	wait(t, tab, `document.querySelector("#status").textContent === "ready" && document.querySelector("#retry").textContent === ""`)
}

// TestThePageTellsThatVerdictsAreHeld has a server that hears nothing for a while.
func TestThePageTellsThatVerdictsAreHeld(t *testing.T) {
	f := serve(t, scene{loops: 2, connections: 400})
	tab, _ := open(t, f)
	wait(t, tab, `document.querySelector("#outages").dataset.value === "0"`)
	require.Equal(t, "none", eval[string](t, tab, `document.querySelector("#away").textContent`))
	const shown = `document.querySelector("#held").checkVisibility()`
	require.False(t, eval[bool](t, tab, shown))
	f.set(func(s *scene) { s.holding = true })
	wait(t, tab, shown)
	require.Contains(t, eval[string](t, tab, `document.querySelector("#held").innerText`), "Verdicts are held")
	require.Equal(t, "status", eval[string](t, tab, `document.querySelector("#held").parentElement.getAttribute("role")`),
		"a screen reader tells it")
	f.set(func(s *scene) { s.holding, s.outages = false, 1 })
	wait(t, tab, `!`+shown)
	require.Equal(t, "1", eval[string](t, tab, `document.querySelector("#outages").textContent`))
	require.Equal(t, "8.2 s in all", eval[string](t, tab, `document.querySelector("#away").textContent`))
	require.Contains(t, eval[string](t, tab, `document.querySelector("#outages-tile").title`), "289 verdicts were put off")
}

func TestARowEndsWithItsConnection(t *testing.T) {
	f := serve(t, scene{loops: 1, connections: 3})
	tab, _ := open(t, f)
	wait(t, tab, `document.querySelectorAll("#idle tbody tr").length === 3`)
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
	f := serve(t, scene{loops: 1, connections: 3})
	tab, _ := open(t, f)
	wait(t, tab, `document.querySelectorAll("#idle tbody tr").length === 3`)
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
	f := serve(t, scene{loops: 1, connections: 3, writable: true, token: "s3cret+/="})
	tab, _ := open(t, f)
	wait(t, tab, `document.querySelector("button.kick")`)

	run(t, tab, chromedp.Evaluate(first, nil))
	wait(t, tab, message+`.startsWith("The token is missing.")`)
	require.Equal(t, "secret", eval[string](t, tab, `document.activeElement.id`))
	run(t, tab, chromedp.SendKeys("#token input", "wrong\r", chromedp.ByQuery), chromedp.Evaluate(first, nil))
	wait(t, tab, message+`.startsWith("The token is wrong.")`)

	f.posts() // drop the requests so far
	run(t, tab, chromedp.Evaluate(fmt.Sprintf(`location.hash = "token=" + encodeURIComponent(%q)`, f.token()), nil))
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

func TestAServerWithoutATokenCannotBeChanged(t *testing.T) {
	f := serve(t, scene{loops: 1, connections: 3})
	tab, _ := open(t, f)
	wait(t, tab, `document.querySelector("button.kick")`)
	require.Zero(t, eval[int](t, tab, `document.querySelectorAll(
		"button.kick:enabled, #timeouts input:enabled, #timeouts button:enabled").length`))
	require.Contains(t, eval[string](t, tab, `document.body.innerText`), "the server was started without --admin-token-file")
}

// TestAPageThatNeedsAToken has a server that requires a token for reading.
func TestAPageThatNeedsAToken(t *testing.T) {
	f := serve(t, scene{loops: 1, connections: 3, writable: true, token: "s3cret", private: true})
	tab, _ := open(t, f)
	wait(t, tab, `document.querySelector("#retry").textContent === "a token is needed" && document.activeElement.id === "secret"`)
	require.Equal(t, "disconnected", eval[string](t, tab, `document.querySelector("#status").textContent`))
	run(t, tab, chromedp.SendKeys("#token input", "s3cret\r", chromedp.ByQuery))
	wait(t, tab, `document.querySelector("#status").textContent === "ready"`)
	run(t, tab, chromedp.Navigate(f.url+"/"))
	// The page has kept the token.
	wait(t, tab, `document.querySelector("#status").textContent === "ready"`)

	other, _ := open(t, f, "/#token=s3cret")
	wait(t, other, `document.querySelector("#status").textContent === "ready" && location.hash === ""`)
}

func TestTimeouts(t *testing.T) {
	f := serve(t, scene{loops: 1, connections: 3, writable: true, token: "s3cret"})
	tab, _ := open(t, f, "/#token=s3cret")
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
	tab, seen := open(t, f)
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
	f := serve(t, scene{loops: 2, connections: 1000, reaped: 500, uptime: 5000})
	tab, _ := open(t, f)
	wait(t, tab, `document.querySelector("#status").textContent === "ready"`)
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
	f := serve(t, scene{loops: 1, connections: 3, crowded: "32 viewers already"})
	tab, _ := open(t, f)
	wait(t, tab, `/^32 viewers already; next try in \d s$/.test(document.querySelector("#retry").textContent)`)
	f.set(func(s *scene) { s.crowded = "" })
	wait(t, tab, `document.querySelector("#status").textContent === "ready"`)
	f.set(func(s *scene) { s.ended, s.crowded = "another took the place", "32 viewers already" })
	wait(t, tab, `/^another took the place; next try in \d s$/.test(document.querySelector("#retry").textContent)`)
}

// TestAHiddenPageDisconnects hides the page, which must leave the server alone until it is visible.
func TestAHiddenPageDisconnects(t *testing.T) {
	f := serve(t, scene{loops: 1, connections: 3})
	tab, _ := open(t, f)
	wait(t, tab, `document.querySelector("#status").textContent === "ready"`)
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

// TestViews opens the page in windows of several sizes and keeps screenshots.
func TestViews(t *testing.T) {
	scenes := map[string]scene{
		"few":   {loops: 1, connections: 7, reaped: 2, writable: true, token: "s3cret", uptime: 75},
		"2":     {thorough: true, loops: 2, connections: 1000, reaped: 30, writable: true, token: "s3cret", uptime: 4000},
		"16":    {thorough: true, loops: 16, connections: 100_000, reaped: 1234, uptime: 90_000},
		"64":    {loops: 64, connections: 1_000_000, reaped: 123_456, writable: true, token: "s3cret", uptime: 900_000, status: "draining"},
		"empty": {loops: 1, status: "starting"},
		"held":  {loops: 2, connections: 1000, reaped: 30, uptime: 4000, outages: 1, holding: true},
	}
	for name, s := range scenes {
		t.Run(name, func(t *testing.T) {
			f := serve(t, s)
			tab, seen := open(t, f, "/#token=s3cret")
			wait(t, tab, fmt.Sprintf(`document.querySelectorAll(".ring").length === %d`, s.loops))
			if os.Getenv("IDLEWHEEL_PICTURES") != "" {
				fill(f, 30*time.Second)
			}
			for _, width := range []int64{320, 768, 1280, 2560} {
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
					assert.Empty(t, eval[[]string](t, tab, tooFaint), view)
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

// A scene is the state of a fake server. Its uptime, its hands and 250 messages per second advance
// by themselves.
type scene struct {
	loops, connections, reaped int
	uptime                     float64
	status                     string // ready if empty
	writable                   bool
	token                      string
	private                    bool   // reading requires the token as well
	evil                       string // for addresses and details
	gone                       string // the ID of a connection that is closed
	few                        bool   // a ring has four equally full sectors
	blocked                    bool   // an event loop does not answer
	outages                    int
	holding                    bool   // verdicts are held
	limits                     object // those of hello if nil
	missing, forbidden         bool   // the answers to a kick
	crowded, ended             string // why there is no stream, and why one ends
	thorough                   bool   // the test opens it in every window
}

func (s scene) hello() object {
	address := "127.0.0.1:7000"
	if s.evil != "" {
		address = s.evil
	}
	limits := s.limits
	if limits == nil {
		limits = object{
			"read-timeout": "30s", "write-timeout": "0s", "all-timeout": "0s", "first-byte-timeout": "10s", "max-age": "24h0m0s", "jitter": "0.1",
			"write-stall-timeout": "20s", "heartbeat": "0s", "max-connections": "19000",
		}
	}
	return object{
		"name": "idlewheel", "version": "v0.7.0", "address": address, "reasons": reasons,
		"writable": s.writable, "limits": limits,
	}
}

func (s scene) frame(up float64) object {
	up += s.uptime
	const turn = 102.4
	rings := []object{}
	random := rand.New(rand.NewPCG(uint64(s.connections), 7))
	each := s.connections / max(1, s.loops)
	for loop := range s.loops {
		now := 1000 + up + float64(loop)*.01
		hand := int(math.Mod(now, turn) / turn * 120)
		values := make([]int, 120)
		for i := range 38 { // 30 s is 35 sectors
			at := float64(i) / 36
			n := float64(each) / 36 * (.35 + .8*random.Float64() + 2.2*math.Exp(-math.Pow((at-.3-.1*float64(loop%3))*9, 2)))
			values[(hand+1+i)%120] = int(math.Max(0, n+random.Float64()-.4) * math.Min(1, 40*(1.04-at)))
		}
		values[(hand+70)%120] = each / 50
		if s.few {
			values = []int{each / 4, each / 4, each / 4, each / 4}
		}
		mine := s.reaped / s.loops
		if loop < s.reaped%s.loops {
			mine++
		}
		rings = append(rings, object{
			"loop": loop + 1, "connections": each, "turn_seconds": turn, "now_seconds": now, "sectors": values, "later": each / 90,
			"reaped": object{"read idle": mine - mine/9, "below min rate": mine / 9},
		})
	}
	if s.blocked {
		rings = nil
	}
	status := s.status
	if status == "" {
		status = "ready"
	}
	f := object{
		"now_ms": time.Now().UnixMilli(), "uptime_seconds": up, "status": status,
		"connections": s.connections, "limit": max(19_000, s.connections*3/2), "limit_why": "65536 descriptors, less 500 for everything else",
		"opened": s.connections + s.reaped + 50, "closed": s.reaped + 50,
		"reads": int(up * 250), "rejected": 12, "saved_by_kernel": 3,
		"outages": s.outages, "outage_seconds": 8.2 * float64(s.outages), "put_off": 289 * s.outages, "holds": s.outages, "holding": s.holding,
		"reaped":   object{"read idle": s.reaped - s.reaped/9, "below min rate": s.reaped / 9},
		"lateness": object{"count": s.reaped, "mean_seconds": .0512, "max_seconds": .109}, "behind_seconds": 0, "driver_lag_seconds": .00013,
		"pressure": object{"connections": .667, "descriptors": .87, "heap": .012}, "rings": rings, "blocked": s.blocked,
	}
	idle := []object{}
	for i := 0; len(idle) < min(20, s.connections); i++ {
		id := fmt.Sprintf("%d-%d-%d", i%s.loops+1, i, 1000+i)
		if id == s.gone {
			continue
		}
		remote := fmt.Sprintf("10.0.0.1:%d", 4000+i)
		if i == 3 {
			remote = "[2001:db8:85a3:8d3:1319:8a2e:370:7348]:54321"
		}
		if s.evil != "" {
			remote = s.evil
		}
		idle = append(idle, object{
			"id": id, "remote": remote, "state": []string{"open", "open", "held", "open", "handshake", "exempt"}[i%6],
			"age_seconds":       61.2*float64(i+1) + up,
			"read_idle_seconds": math.Max(.2, 28-float64(i)*1.3), "write_idle_seconds": 2.5, "due_seconds": 2 + float64(i)*1.3,
			"received_bytes": 123 * (i + 1) * (i + 1), "sent_bytes": 45678 * (i + 1), "output_bytes": 700 * (i % 3), "missed_heartbeats": i % 2,
		})
	}
	f["idle"] = idle
	recent := []object{}
	for i := range min(20, s.reaped) {
		reason, detail := "read idle", "read idle for 30.1s, limit 30s"
		if i%9 == 8 {
			reason, detail = "below min rate", "below min rate: 12 bytes in 4s of a message, limit 100 bytes a second"
		}
		remote := fmt.Sprintf("10.0.0.1:%d", 5000+s.reaped-i)
		if s.evil != "" {
			remote, detail = fmt.Sprint(s.evil), s.evil
		}
		recent = append(recent, object{
			"at": time.Unix(int64(1763768000-i), 0).UTC().Format("2006-01-02T15:04:05.000Z"), "remote": remote, "reason": reason, "detail": detail,
			"age_seconds": 61.2 * float64(i+1), "lasted_seconds": 30.1, "limit_seconds": 30, "late_seconds": .08,
		})
	}
	f["recent"] = recent
	if s.limits != nil {
		f["limits"] = s.limits
	}
	return f
}

type post struct{ path, authorization, contentType, body string }

// A fake is a server with the page and the API, which shows a scene. Safe for concurrent use.
type fake struct {
	url    string
	server *httptest.Server

	mu     sync.Mutex
	scene  scene
	began  time.Time
	posted []post
	open   int
}

func serve(t *testing.T, s scene) *fake {
	t.Helper()
	f := &fake{scene: s}
	f.start(t)
	f.url = f.server.URL
	t.Cleanup(func() { f.stop() })
	return f
}

// start starts the server, again at the same address.
func (f *fake) start(t *testing.T) {
	t.Helper()
	f.began = time.Now()
	f.server = httptest.NewUnstartedServer(f)
	if f.url != "" {
		f.server.Listener.Close()
		listener, err := net.Listen("tcp", strings.TrimPrefix(f.url, "http://"))
		require.NoError(t, err)
		f.server.Listener = listener
	}
	f.server.Start()
}

func (f *fake) stop() {
	f.server.CloseClientConnections()
	f.server.Close()
}

func (f *fake) set(change func(*scene)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.scene)
}

func (f *fake) get() scene {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.scene
}

func (f *fake) token() string { return f.get().token }

func (f *fake) viewers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// posts returns the POST requests since its last call.
func (f *fake) posts() []post {
	f.mu.Lock()
	defer f.mu.Unlock()
	posted := f.posted
	f.posted = nil
	return posted
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := f.get()
	known := r.Header.Get("Authorization") == "Bearer "+s.token
	switch {
	case r.Method == http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		f.posted = append(f.posted, post{r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("Content-Type"), string(body)})
		f.mu.Unlock()
		if !known {
			fail(w, http.StatusUnauthorized, "a token is needed")
			return
		}
		f.answer(w, r.URL.Path, body)
	case r.URL.Path == "/":
		w.Header().Set("Content-Security-Policy", page.Policy)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(page.HTML)
	case r.URL.Path == "/api/events" && s.private && !known:
		fail(w, http.StatusUnauthorized, "a token is needed")
	case r.URL.Path == "/api/events" && s.crowded != "":
		fail(w, http.StatusServiceUnavailable, s.crowded)
	case r.URL.Path == "/api/events":
		f.stream(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (f *fake) answer(w http.ResponseWriter, path string, body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id, ok := strings.CutSuffix(strings.TrimPrefix(path, "/api/connections/"), "/kick"); ok {
		switch {
		case f.scene.forbidden:
			fail(w, http.StatusForbidden, "not from here")
		case f.scene.missing:
			fail(w, http.StatusNotFound, "no such connection")
		default:
			f.scene.gone = id
			f.scene.connections--
			w.WriteHeader(http.StatusNoContent)
		}
		return
	}
	given := object{}
	if err := json.Unmarshal(body, &given); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	limits := f.scene.hello()["limits"].(object)
	for name, value := range given {
		d, err := time.ParseDuration(value.(string))
		if err != nil {
			fail(w, http.StatusBadRequest, name+": "+err.Error())
			return
		}
		limits[name] = d.String()
	}
	f.scene.limits = limits
	json.NewEncoder(w).Encode(object{"server": object{}, "limits": limits, "writable": true})
}

// stream sends a frame four times a second, in two parts, as networks may split it.
func (f *fake) stream(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.open++
	began := f.began
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.open--
		f.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	hello, _ := json.Marshal(f.get().hello())
	fmt.Fprintf(w, ": welcome\n\nevent: hello\r\ndata: %s\r\n\r\n", hello)
	for r.Context().Err() == nil {
		if why := f.get().ended; why != "" {
			fmt.Fprintf(w, ": %s\nevent: end\ndata: {\"error\":%q}\n\n", strings.Repeat(" ", 1<<18), why)
			return
		}
		data, _ := json.Marshal(f.get().frame(time.Since(began).Seconds()))
		fmt.Fprintf(w, "event: frame\ndata: %s", data[:len(data)/2])
		flush.Flush()
		fmt.Fprintf(w, "%s\n\n", data[len(data)/2:])
		if flush.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func fail(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(object{"error": text})
}

// fill changes the scene for some time, so that the charts have values.
func fill(f *fake, d time.Duration) {
	random := rand.New(rand.NewPCG(5, 6))
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		f.set(func(s *scene) {
			s.connections = max(0, s.connections+int(random.NormFloat64()*float64(s.connections)/80))
			s.reaped += random.IntN(s.loops*3 + 1)
		})
	}
}

// open opens the page of a server in a browser of its own. An option is a path or a media feature.
func open(t *testing.T, f *fake, options ...any) (context.Context, *witness) {
	t.Helper()
	ctx := startBrowser(t)
	seen := watch(t, ctx)
	path, features := "/", []*emulation.MediaFeature{}
	for _, option := range options {
		switch o := option.(type) {
		case string:
			path = o
		case *emulation.MediaFeature:
			features = append(features, o)
		}
	}
	run(t, ctx, emulation.SetEmulatedMedia().WithFeatures(features),
		emulation.SetDeviceMetricsOverride(1280, 900, 1, false), chromedp.Navigate(f.url+path))
	t.Cleanup(func() {
		requests, _ := seen.get()
		for _, r := range requests {
			require.Regexp(t, "^(data:|"+f.url+"/)", r, "the page requests nothing from another server")
		}
	})
	return ctx, seen
}
