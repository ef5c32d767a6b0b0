// Package kernel queries the operating system about a connection: whether bytes wait unread, when
// the last bytes arrived, and how much output the peer has acknowledged. Facts that a system does
// not report are marked as unknown. The functions are safe for concurrent use.
package kernel

import "time"

// CoarsestStep is the coarsest resolution of the times that a kernel reports.
const CoarsestStep = 11 * time.Millisecond

// KeepAlive returns the silence after which the kernel probes a peer, the interval of the probes
// and their number, so that a dead peer is found after d.
func KeepAlive(d time.Duration) (silence, interval time.Duration, probes int) {
	const longest, number = 32767 * time.Second, 4 // TCP_KEEPIDLE has 15 bits
	silence = min(d/2, longest)
	return silence, (d - silence) / number, number
}
