package idle

import (
	"time"

	"golang.org/x/sys/unix"
)

// kernelStep is the coarsest step in which a Linux kernel (HZ=100) counts what TCP_INFO reports in milliseconds.
const kernelStep = 10 * time.Millisecond

// askKernel asks what gnet cannot know: whether bytes of the peer wait unread in the socket, and what has come and gone, and
// when. After a stall of the loop or of the process gnet runs tasks before it has read what came in meanwhile. About 1 µs.
//
// The counter of bytes that were acknowledged is there since Linux 4.1.
func askKernel(fd int) evidence {
	ev := evidence{found: peek(fd)}
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil { // not TCP
		ev.queued = -1
		if queued, err := unix.IoctlGetInt(fd, unix.TIOCOUTQ); err == nil { // SIOCOUTQ by its other name
			ev.queued = queued
		}
		return ev
	}
	ev.counted = true
	ev.silent = time.Duration(info.Last_data_recv) * time.Millisecond
	ev.quiet = time.Duration(info.Last_data_sent) * time.Millisecond
	ev.received, ev.acked, ev.moved = info.Bytes_received, info.Bytes_acked, uint32(info.Bytes_acked)
	ev.inFlight, ev.again = info.Unacked > 0, info.Retransmits > 0
	ev.unsent = int(info.Notsent_bytes)
	if ev.queued = ev.unsent; ev.inFlight {
		ev.queued += max(int(int64(info.Bytes_sent)-int64(info.Bytes_retrans)-int64(info.Bytes_acked)), 1)
	}
	return ev
}
