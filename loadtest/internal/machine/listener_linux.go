package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Listens reports whether a process has a listening TCP socket with the given port.
func Listens(pid int, port uint16) (bool, error) {
	proc := fmt.Sprintf("/proc/%d", pid)
	fds, err := filepath.Glob(proc + "/fd/*")
	if err != nil {
		return false, err
	}
	if len(fds) == 0 {
		if _, err := os.ReadDir(proc + "/fd"); err != nil {
			return false, fmt.Errorf("machine: sockets of process %d: %w", pid, err)
		}
	}
	owned := map[string]bool{}
	for _, fd := range fds {
		if link, err := os.Readlink(fd); err == nil { // it may have been closed
			owned[link] = true
		}
	}
	for _, table := range []string{"/net/tcp", "/net/tcp6"} {
		text, err := os.ReadFile(proc + table)
		if err != nil {
			continue // no IPv6
		}
		for line := range strings.Lines(string(text)) {
			// sl, local address, remote address, state, ... and the inode as field 9
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && owned["socket:["+f[9]+"]"] {
				return true, nil
			}
		}
	}
	return false, nil
}
