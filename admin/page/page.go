// Package page holds the live page of the admin listener: the timing wheels of a server as they turn, its counters, who is idle the
// longest, and who was reaped and why.
//
// It is one file with everything in it. It asks its own origin for api/events, and for nothing else until somebody kicks a connection or
// changes a timeout, and it works under a Content-Security-Policy of
//
//	default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:;
//	base-uri 'none'; form-action 'none'; frame-ancestors 'none'
package page

import _ "embed" // for page.html

// HTML is the page, in UTF-8. It is not to be modified.
//
//go:embed page.html
var HTML []byte
