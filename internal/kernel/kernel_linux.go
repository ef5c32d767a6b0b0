package kernel

import (
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// step is the resolution of the times in TCP_INFO: one tick of the kernel, 1 to 10 ms, plus the
// millisecond to which the kernel truncates the result.
var step = tick() + time.Millisecond

func tick() time.Duration {
	const coarsest = 10 * time.Millisecond // HZ=100
	var resolution unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &resolution); err != nil {
		return coarsest
	}
	if tick := time.Duration(resolution.Nano()); tick >= time.Millisecond && tick <= coarsest {
		return tick
	}
	return coarsest
}

// Ask reports whether bytes of the peer wait unread in the socket, how much was received and sent,
// and when. It takes about 1 µs and allocates nothing.
func Ask(fd int, ev *verdict.Evidence) { AskUnlessFresh(fd, 0, ev) }

// AskUnlessFresh is Ask, but does not find out whether bytes wait unread if the last one came less
// than fresh ago. That takes half of the time.
func AskUnlessFresh(fd int, fresh time.Duration, ev *verdict.Evidence) {
	*ev = verdict.Evidence{Queued: -1}
	isReset, isMultipath := askMultipath(fd, ev)
	if !isMultipath {
		isReset = askTCP(fd, ev)
	}
	switch {
	case isReset: // also if bytes wait that came before
		ev.Found = verdict.Ended
	case !ev.Dated || ev.Received == 0 || ev.Silent >= fresh:
		ev.Found = peek(fd)
	}
	// The last acknowledgement is no older than the last segment, in order or not.
	if ev.Early != 0 && (ev.Found != verdict.Nothing || ev.Answered >= ev.Silent || !holdsInput(fd)) {
		ev.Early = 0
	}
}

// holdsInput reports whether the kernel holds received bytes, in order or not (Linux 4.12).
func holdsInput(fd int) bool {
	var memory [9]uint32 // SK_MEMINFO_VARS; the first one, SK_MEMINFO_RMEM_ALLOC, is that of the input
	_, ok := getsockopt(fd, unix.SOL_SOCKET, unix.SO_MEMINFO, unsafe.Pointer(&memory), unsafe.Sizeof(memory))
	return ok && memory[0] > 0
}

// getsockopt gets an option, a structure of a size in bytes. It returns how many the kernel has
// filled. Package unix has no such function for structures that does not allocate.
func getsockopt(fd, level, option int, value unsafe.Pointer, size uintptr) (filled uintptr, ok bool) {
	length := uint32(size)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(value), uintptr(unsafe.Pointer(&length)), 0)
	return uintptr(length), errno == 0
}

// States of tcp_states.h of Linux in which the peer has ended its side.
const (
	stateClosed    = 7 // it was reset, or both sides have ended
	stateCloseWait = 8
	stateLastAck   = 9 // so has the server, and its output waits
	stateClosing   = 11
)

// askTCP reports what the kernel tells of a TCP connection, and whether it was reset or timed out.
// Of other sockets it reports what is queued.
func askTCP(fd int, ev *verdict.Evidence) (isReset bool) {
	var info unix.TCPInfo
	if !tcpInfo(fd, &info) {
		if queued, err := unix.IoctlGetInt(fd, unix.TIOCOUTQ); err == nil { // SIOCOUTQ by its other name
			ev.Queued = queued
		}
		return false
	}
	ev.Dated, ev.Step = true, step
	ev.Silent, ev.Quiet = milliseconds(info.Last_data_recv), milliseconds(info.Last_data_sent)
	ev.Received, ev.Acked = info.Bytes_received, info.Bytes_acked
	ev.Early, ev.Answered = info.Rcv_ooopack, milliseconds(info.Last_ack_recv)
	sent := info.Bytes_sent - info.Bytes_retrans
	// Kernels before 4.19 do not count sent bytes. The SYN may count as one acknowledged byte.
	ev.Counted = info.Bytes_sent > 0 || info.Bytes_acked <= 1 && info.Unacked == 0
	ev.Moved = uint32(info.Bytes_acked + sent)
	switch info.State {
	case stateClosed, stateCloseWait, stateLastAck, stateClosing:
		ev.HalfEnded = true
		if info.State == stateClosed {
			// An end in order acknowledges the FIN of the server as one more byte.
			_, hasError := hasEnded(fd)
			isReset = hasError || info.Bytes_acked <= sent
		}
		if !isReset {
			ev.Received -= min(ev.Received, 1) // the FIN of the peer
		}
	}
	ev.InFlight, ev.Resent = info.Unacked > 0, info.Retransmits > 0
	ev.Unsent = int(info.Notsent_bytes)
	if ev.Queued = ev.Unsent; ev.InFlight {
		ev.Queued += max(int(int64(sent)-int64(info.Bytes_acked)), 1)
	}
	return isReset
}

// HoldsOutput reports whether the kernel holds output that the peer has not acknowledged. If the
// query fails it reports true, so that the caller uses Ask. It takes a third of the time of Ask
// (BenchmarkHoldsOutput).
func HoldsOutput(fd int) bool {
	queued, err := unix.IoctlGetInt(fd, unix.TIOCOUTQ) // SIOCOUTQ by its other name
	return queued > 0 || err != nil
}

// tcpInfo reports whether the socket is TCP and the kernel fills all fields that Ask uses, up to
// Bytes_received (Linux 4.1). gVisor succeeds but leaves most fields zero, Rcv_mss among them. A
// real connection has a maximum segment size above zero.
func tcpInfo(fd int, info *unix.TCPInfo) bool {
	size, ok := getsockopt(fd, unix.IPPROTO_TCP, unix.TCP_INFO, unsafe.Pointer(info), unsafe.Sizeof(*info))
	return ok && complete(info, size)
}

func complete(info *unix.TCPInfo, size uintptr) bool {
	received := unsafe.Offsetof(info.Bytes_received) + unsafe.Sizeof(info.Bytes_received)
	return size >= received && info.Rcv_mss > 0
}

// peek inspects the socket without reading from it. unix.Recvfrom would allocate an address.
func peek(fd int) verdict.Finding {
	var b [1]byte
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b)), uintptr(len(b)),
			unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
		switch {
		// The last two errors mean that a sandbox forbids the call.
		case errno == unix.EAGAIN, errno == unix.ENOSYS, errno == unix.EPERM:
			return verdict.Nothing
		case errno == unix.EINTR:
			continue
		case errno != 0 || n == 0:
			return verdict.Ended
		default:
			return verdict.Unread
		}
	}
}

// SetUserTimeout bounds how long sent data may stay without acknowledgement (RFC 5482).
func SetUserTimeout(fd int, d time.Duration) error {
	err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d/time.Millisecond))
	return os.NewSyscallError("setsockopt TCP_USER_TIMEOUT", err)
}

// Interrupt ends the calls that read from a descriptor or write to it, if they block.
func Interrupt(fd int) {
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil && flags&unix.O_NONBLOCK == 0 {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR)
	}
}

// LocalAddr returns the address of this side of a TCP connection, or the zero Addr.
func LocalAddr(fd int) netip.Addr {
	switch name, _ := unix.Getsockname(fd); a := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(a.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(a.Addr).Unmap()
	}
	return netip.Addr{}
}
