// Package kernel asks the operating system about a connection: whether bytes wait unread, when the
// last ones arrived, and what the peer has taken. What a system cannot tell is marked as not known.
// Its functions are safe for concurrent use.
package kernel

import "time"

// CoarsestStep is the coarsest step in which a kernel dates what it has received and sent.
const CoarsestStep = 11 * time.Millisecond
