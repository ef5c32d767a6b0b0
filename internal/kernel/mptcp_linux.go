package kernel

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// TCP_INFO of a connection of Multipath TCP (RFC 8684) is about its first path only. The structures
// below are those of linux/mptcp.h.

const (
	optInfo    = 1 // MPTCP_INFO
	optTCPInfo = 2 // MPTCP_TCPINFO, since Linux 5.16
	fallback   = 1 // MPTCP_INFO_FLAG_FALLBACK: it is a connection of TCP by now
	maxPaths   = 8
)

// A multipathInfo is a struct mptcp_info.
type multipathInfo struct {
	_                                   [8]uint8
	flags, _                            uint32
	writeSeq, acknowledged, next        uint64 // sequence numbers of the connection
	_                                   [3]uint8
	_                                   uint32
	_, bytesSent, bytesReceived, bytesA uint64 // since Linux 6.5
	_                                   [4]uint8
	lastSent, lastReceived, _           uint32 // ms ago, since Linux 6.10
}

// A pathInfo is the part of a TCPInfo that each kernel has, up to Bytes_received. The kernel packs
// the paths by the size that it is asked for, unless its own structure is smaller.
type pathInfo [17]uint64

// A pathsInfo is what MPTCP_TCPINFO takes and returns.
type pathsInfo struct {
	size, paths, sizeOfKernel, sizeOfPath uint32
	path                                  [maxPaths]pathInfo
}

// multipath says that a connection of Multipath TCP was opened. Until then Ask does not ask whether
// a connection is one, which would take a third of its time.
var multipath atomic.Bool

// NoteOpened is called for each new connection.
func NoteOpened(fd int) {
	var all multipathInfo
	if multipath.Load() {
		return
	}
	if _, is := getsockopt(fd, unix.SOL_MPTCP, optInfo, unsafe.Pointer(&all), unsafe.Sizeof(all)); is {
		multipath.Store(true)
	}
}

// askMultipath reports what the kernel tells of a connection of Multipath TCP, and whether it was
// reset. It reports false for all others.
func askMultipath(fd int, ev *verdict.Evidence) (isReset, is bool) {
	if !multipath.Load() {
		return false, false
	}
	var all multipathInfo
	size, ok := getsockopt(fd, unix.SOL_MPTCP, optInfo, unsafe.Pointer(&all), unsafe.Sizeof(all))
	if !ok || all.flags&fallback != 0 {
		return false, false
	}
	askPaths(fd, ev)
	ev.HalfEnded, isReset = hasEnded(fd)
	addWhole(&all, size, ev)
	return isReset, true
}

func askPaths(fd int, ev *verdict.Evidence) {
	paths := pathsInfo{sizeOfPath: uint32(unsafe.Sizeof(pathInfo{}))}
	paths.size = uint32(unsafe.Offsetof(paths.path))
	if _, ok := getsockopt(fd, unix.SOL_MPTCP, optTCPInfo, unsafe.Pointer(&paths), unsafe.Sizeof(paths)); !ok {
		return
	}
	for _, path := range paths.path[:min(paths.paths, maxPaths)] {
		var info unix.TCPInfo
		*(*pathInfo)(unsafe.Pointer(&info)) = path
		addPath(&info, uintptr(paths.sizeOfPath), ev)
	}
}

// addPath adds the answer about one of the paths that exist. What a path has received is a sign of
// life even if bytes before it are still missing.
func addPath(p *unix.TCPInfo, size uintptr, ev *verdict.Evidence) {
	if !complete(p, size) {
		return
	}
	silent, quiet := milliseconds(p.Last_data_recv), milliseconds(p.Last_data_sent)
	if !ev.Dated {
		ev.Dated, ev.Step, ev.Silent, ev.Quiet = true, step, silent, quiet
	}
	if p.Bytes_received > 0 && (ev.Received == 0 || silent < ev.Silent) {
		ev.Silent = silent
	}
	ev.Quiet = min(ev.Quiet, quiet)
	ev.Received += p.Bytes_received
	ev.Acked += p.Bytes_acked
	ev.InFlight = ev.InFlight || p.Unacked > 0
	ev.Resent = ev.Resent || p.Retransmits > 0
}

// hasEnded reports whether the peer has ended its side, and whether the connection was reset and
// the server has not met that yet. The state of the first path does not tell.
func hasEnded(fd int) (half, isReset bool) {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	if _, err := unix.Poll(fds[:], 0); err != nil {
		return false, false
	}
	events := fds[0].Revents
	return events&(unix.POLLRDHUP|unix.POLLHUP) != 0, events&unix.POLLERR != 0
}

// addWhole adds the answer about the connection. It knows paths that have ended, and counts bytes
// once that were sent on two paths.
func addWhole(all *multipathInfo, size uintptr, ev *verdict.Evidence) {
	ev.Queued = int(all.writeSeq - all.acknowledged)
	ev.Moved = uint32(all.acknowledged)
	if size > unsafe.Offsetof(all.bytesA) {
		if ev.Received = min(ev.Received, 1); all.bytesReceived > 0 || ev.HalfEnded {
			ev.Received = all.bytesReceived // otherwise all bytes so far wait for some of another path
		}
		ev.Acked = all.bytesA
		ev.Counted = true
		ev.Moved = uint32(all.bytesSent + all.bytesA)
		ev.Unsent = max(ev.Queued-int(all.bytesSent-all.bytesA), 0)
	} else if ev.Received > 0 {
		ev.Received = all.next // paths that have ended took their counts with them
	}
	if size > unsafe.Offsetof(all.lastReceived) {
		received, sent := milliseconds(all.lastReceived), milliseconds(all.lastSent)
		if !ev.Dated {
			ev.Dated, ev.Step, ev.Silent, ev.Quiet = true, step, received, sent
		}
		ev.Silent, ev.Quiet = min(ev.Silent, received), min(ev.Quiet, sent)
	}
}

func milliseconds(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }
