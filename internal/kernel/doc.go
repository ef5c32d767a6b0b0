// Package kernel queries the operating system about a connection: whether bytes wait unread, when
// the last bytes arrived, and how much output the peer has acknowledged. Facts that a system does
// not report are marked as unknown. The functions are safe for concurrent use.
package kernel

import "time"

// CoarsestStep is the coarsest resolution of the times that a kernel reports.
const CoarsestStep = 11 * time.Millisecond
