package machine

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

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
		if target, err := os.Readlink(filepath.Join(dir, "fd", l.Name())); err == nil { // it may have been closed
			owned[target] = true
		}
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
