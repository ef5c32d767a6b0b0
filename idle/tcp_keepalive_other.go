//go:build !linux

package idle

import (
	"time"

	"github.com/panjf2000/gnet/v2"
)

// setUserTimeout does nothing: retransmission gives up when the system sees fit.
func setUserTimeout(gnet.Conn, time.Duration) error { return nil }
