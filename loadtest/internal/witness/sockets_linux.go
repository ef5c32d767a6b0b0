package witness

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
)

// infoAttribute is the attribute with a struct tcp_info, INET_DIAG_INFO.
const infoAttribute = 2

// diagMessage is a struct inet_diag_msg. Attributes follow it.
type diagMessage struct {
	Family, State, Timer, Retransmits uint8
	ID                                machine.SocketID
	Expires, Unread, Unsent, UID      uint32
	Inode                             uint32
}

// parse returns the socket of a message that arrived now.
func parse(message []byte, now time.Time) (s socket, ok bool) {
	var m diagMessage
	size := int(unsafe.Sizeof(m))
	if len(message) < size {
		return s, false
	}
	copy(bytesOf(&m), message)
	s = socket{
		cookie: uint64(m.ID.Cookie[1])<<32 | uint64(m.ID.Cookie[0]), state: m.State, unread: m.Unread,
		local: address(m.Family, m.ID.Local, m.ID.LocalPort), remote: address(m.Family, m.ID.Remote, m.ID.RemotePort), at: now,
	}
	attributes, err := nl.ParseRouteAttr(message[size:])
	for _, a := range attributes {
		if a.Attr.Type == infoAttribute {
			var info unix.TCPInfo
			copy(bytesOf(&info), a.Value) // older kernels send less
			s.lastByte = now.Add(-time.Duration(info.Last_data_recv) * time.Millisecond)
			s.dataIn, s.otherIn = info.Data_segs_in, info.Segs_in-info.Data_segs_in
			s.dataOut, s.otherOut = info.Data_segs_out, info.Segs_out-info.Data_segs_out
			s.bytesIn = info.Bytes_received
			s.finAcked = info.Bytes_acked > info.Bytes_sent-info.Bytes_retrans
		}
	}
	return s, err == nil
}

// bytesOf returns the memory of a value without pointers.
func bytesOf[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

func address(family uint8, ip [16]byte, port [2]byte) netip.AddrPort {
	addr := netip.AddrFrom16(ip).Unmap()
	if family == unix.AF_INET {
		addr = netip.AddrFrom4([4]byte(ip[:4]))
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(port[:]))
}

// ListeningPorts returns the TCP ports on which a process listens, in ascending order. The process
// must be in the network namespace of the caller.
func ListeningPorts(pid int) ([]int, error) {
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	if ours, err := os.Readlink("/proc/self/ns/net"); err != nil || ours != theirs {
		return nil, fmt.Errorf("process %d is in another network namespace: run nsenter -t %d -n loadtest witness", pid, pid)
	}
	return machine.ListeningPorts(pid)
}

// events collects the sockets that the kernel frees. Safe for concurrent use.
type events struct {
	netlink *nl.NetlinkSocket
	reading sync.WaitGroup

	mu    sync.Mutex
	freed []socket
	lost  bool // the kernel has dropped events
}

// listenForEvents subscribes to the freed sockets of the ports. The caller must call close.
func listenForEvents(ports []int) (*events, error) {
	s, err := nl.Subscribe(unix.NETLINK_SOCK_DIAG, unix.SKNLGRP_INET_TCP_DESTROY, unix.SKNLGRP_INET6_TCP_DESTROY)
	if err != nil {
		return nil, fmt.Errorf("events of sock_diag: %w", err)
	}
	const eventBuffer = 32 << 20                                      // bytes: about 40,000 events
	if err := s.SetReceiveBufferSize(eventBuffer, true); err != nil { // it needs CAP_NET_ADMIN
		_ = s.SetReceiveBufferSize(eventBuffer, false)
	}
	e := &events{netlink: s}
	e.reading.Go(func() { e.read(ports) })
	return e, nil
}

// read keeps the sockets of the ports, until close is called.
func (e *events) read(ports []int) {
	for {
		messages, _, err := e.netlink.Receive()
		now := time.Now()
		e.mu.Lock()
		e.lost = e.lost || err != nil
		for _, m := range messages {
			if s, ok := parse(m.Data, now); ok && slices.Contains(ports, int(s.local.Port())) {
				e.freed = append(e.freed, s)
			}
		}
		e.mu.Unlock()
		if err != nil && !errors.Is(err, unix.ENOBUFS) { // closed, or broken
			return
		}
	}
}

// take returns the sockets freed since the last call, and whether events were ever lost.
func (e *events) take() (freed []socket, lost bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	freed, e.freed = e.freed, nil
	return freed, e.lost
}

// close ends the subscription and waits for its goroutine.
func (e *events) close() {
	e.netlink.Close()
	e.reading.Wait()
}
