// Package page has the live page of the admin listener. The page shows the turning timing wheels
// of a server, its counters, the longest idle connections, and the last reaped connections with
// the reason.
//
// It is one file. It fetches api/events from its own origin, and sends requests only when the
// viewer kicks a connection or changes a timeout. It works under this Content-Security-Policy:
//
//	default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline';
//	connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';
//	frame-ancestors 'none'
package page

import _ "embed" // for page.html

// HTML is the page, in UTF-8. It must not be modified.
//
//go:embed page.html
var HTML []byte
