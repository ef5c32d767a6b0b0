package idle

import (
	"net"
	"time"

	"github.com/panjf2000/gnet/v2"
)

const (
	minKeepAlive = 8 * time.Second // the options of TCP count seconds
	maxKeepAlive = 24 * time.Hour
	// probes are sent in the second half of the time, after as long a silence.
	probes = 4
)

// setTCPKeepAlive lets the kernel probe a silent peer after half the time and give it up after all of it; 0 takes that back. On sockets
// that are not TCP it does nothing.
func setTCPKeepAlive(c gnet.Conn, d time.Duration) error {
	if _, ok := c.LocalAddr().(*net.TCPAddr); !ok {
		return nil
	}
	probe := d > 0
	if !probe {
		d = minKeepAlive // whatever
	}
	if err := c.SetKeepAlive(probe, d/2, d/2/probes, probes); err != nil {
		return err
	}
	if !probe {
		d = 0
	}
	return setUserTimeout(c, d)
}
