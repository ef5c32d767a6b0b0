package machine

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// diagRequest is a struct inet_diag_req_v2, see sock_diag(7).
type diagRequest struct {
	Family, Protocol, Extensions, _ uint8
	States                          uint32
	SocketID
}

// A SocketID is a struct inet_diag_sockid. Ports and addresses are big-endian.
type SocketID struct {
	LocalPort, RemotePort [2]byte
	Local, Remote         [16]byte
	Interface             uint32
	Cookie                [2]uint32
}

// DumpSockets calls each with the struct inet_diag_msg of every TCP socket in one of the states, of
// both address families, with this local port. States and extensions are bit sets.
func DumpSockets(states uint32, port int, extensions uint8, each func(message []byte)) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		r := diagRequest{Family: family, Protocol: unix.IPPROTO_TCP, Extensions: extensions, States: states}
		binary.BigEndian.PutUint16(r.LocalPort[:], uint16(port)) // the kernel omits other ports
		data, _ := binary.Append(nil, binary.NativeEndian, r)    // it has only numbers
		request := nl.NewNetlinkRequest(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		request.AddRawData(data)
		err := request.ExecuteIter(unix.NETLINK_SOCK_DIAG, unix.SOCK_DIAG_BY_FAMILY, func(message []byte) bool {
			each(message)
			return true
		})
		if noIPv6 := family == unix.AF_INET6 && errors.Is(err, unix.ENOENT); err != nil && !noIPv6 {
			return fmt.Errorf("sock_diag: %w", err)
		}
	}
	return nil
}

// TargetSockets returns the number of sockets of a local TCP port in ESTABLISHED or CLOSE_WAIT: the
// connections that servers on this machine hold there, accepted or not. In CLOSE_WAIT the peer has
// closed its end, and the server has not. The client end of a local connection has another port and
// does not count.
//
// It uses netlink, where the kernel skips other ports: /proc/net/tcp would have a line for each of
// a million sockets. The number is an estimate while connections open and close, because the kernel
// walks its table without a lock.
func TargetSockets(port int) (established int, err error) {
	const held = 1<<unix.BPF_TCP_ESTABLISHED | 1<<unix.BPF_TCP_CLOSE_WAIT
	// Sockets of a dual-stack listener are AF_INET6, even with an IPv4 peer.
	if err := DumpSockets(held, port, 0, func([]byte) { established++ }); err != nil {
		return 0, fmt.Errorf("machine: sockets of port %d: %w", port, err)
	}
	return established, nil
}

// ListeningPorts returns the TCP ports on which a process listens, in ascending order. The process
// may be in another network namespace.
func ListeningPorts(pid int) (ports []int, err error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	links, err := os.ReadDir(dir + "fd")
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	owned := map[string]bool{}
	for _, l := range links {
		target, _ := os.Readlink(filepath.Join(dir, "fd", l.Name())) // empty if it has been closed
		owned[target] = true
	}
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		if f, err := os.Open(dir + table); err == nil { // there may be no IPv6
			ports = append(ports, listening(bufio.NewScanner(f), owned)...)
			_ = f.Close()
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports), nil
}

// listening returns the ports of the owned listeners in a table such as /proc/net/tcp. Below its
// head it has the listeners first, and then perhaps a million connections, which are not read.
func listening(table *bufio.Scanner, owned map[string]bool) (ports []int) {
	for table.Scan(); table.Scan(); {
		// sl, local address, remote address, state, ... and the inode as field 9
		f := strings.Fields(table.Text())
		if len(f) < 10 || f[3] != "0A" {
			break
		}
		_, hex, _ := strings.Cut(f[1], ":")
		if port, err := strconv.ParseUint(hex, 16, 16); err == nil && owned["socket:["+f[9]+"]"] {
			ports = append(ports, int(port))
		}
	}
	return ports
}
