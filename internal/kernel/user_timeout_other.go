//go:build !linux

package kernel

import "time"

// SetUserTimeout does nothing: retransmission gives up when the system sees fit.
func SetUserTimeout(int, time.Duration) error { return nil }
