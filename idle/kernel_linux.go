package idle

import (
	"time"

	"golang.org/x/sys/unix"
)

// kernelStep is the coarsest step in which a Linux kernel (HZ=100) counts what TCP_INFO reports in milliseconds.
const kernelStep = 10 * time.Millisecond

// askKernel asks what gnet cannot know: whether bytes of the peer wait unread in the socket, and when the last one came.
// After a stall of the loop or of the process gnet runs tasks before it has read what came in meanwhile. About 1 µs.
func askKernel(fd int) evidence {
	ev := peek(fd)
	if ev.found != nothing {
		return ev
	}
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil { // not TCP
		return ev
	}
	return evidence{found: nothing, exact: true, silent: time.Duration(info.Last_data_recv) * time.Millisecond}
}
