package browser

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
