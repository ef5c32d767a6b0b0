// Package page has the live page of the admin listener. The page shows the turning timing wheels
// of a server, its counters, the longest idle connections, and the last reaped connections with
// the reason.
//
// It is one file. It fetches api/events from its own origin, and sends requests only when the
// viewer kicks a connection or changes a timeout.
package page

import (
	"crypto/sha256"
	_ "embed" // for page.html
	"encoding/base64"
	"strings"
)

// HTML is the page, in UTF-8. It must not be modified.
//
//go:embed page.html
var HTML []byte

// Policy is the Content-Security-Policy of the page. It allows the style sheet and the script of
// the page, by their hashes, and requests to the server that the page is from. It forbids
// everything else.
var Policy = "default-src 'none'; style-src " + hashOf("style") + "; script-src " + hashOf("script") + "; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// hashOf returns the hash of the text of the only element of HTML with a tag.
func hashOf(tag string) string {
	_, after, begins := strings.Cut(string(HTML), "<"+tag+">")
	text, rest, ends := strings.Cut(after, "</"+tag+">")
	if !begins || !ends || strings.Contains(rest, "<"+tag) {
		panic("BUG: page: page.html has no <" + tag + ">, or two")
	}
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
