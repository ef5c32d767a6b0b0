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
// The counters of bytes that were sent are there since Linux 4.19; before, only those count that were acknowledged.
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
	sent := info.Bytes_sent - info.Bytes_retrans // what is sent again is no progress
	ev.moved = uint32(sent + info.Bytes_acked)
	ev.received, ev.acked = info.Bytes_received, info.Bytes_acked
	ev.queued = int(info.Notsent_bytes)
	if info.Unacked > 0 {
		ev.queued += max(int(int64(sent)-int64(info.Bytes_acked)), 1)
	}
	return ev
}
