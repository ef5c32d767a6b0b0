package machine

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// KernelMemory returns what the system has for sockets and what belongs to them, in bytes: its slabs, where sockets, their files, inodes
// and dentries are, and the buffers of TCP.
//
// It is of the whole machine: of both ends of a connection if both are here, and of everything else that has slabs, such as the dentries
// and inodes of files that were read. Only the difference of two readings says something about connections, and only if nothing else
// happens meanwhile. Heads of buffers count twice, in the slabs and in the buffers, while data waits in them. Page tables and what the
// kernel has from vmalloc, such as the descriptor table of a large process, do not count.
func KernelMemory() (uint64, error) {
	slab, err := kilobytesOf("/proc/meminfo", "Slab")
	if err != nil {
		return 0, err
	}
	sockstat, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		return 0, fmt.Errorf("machine: %w", err)
	}
	pages, err := tcpPages(string(sockstat))
	if err != nil {
		return 0, err
	}
	return slab + pages*uint64(os.Getpagesize()), nil
}

// tcpPages returns how many pages the buffers of TCP take, of IPv4 and IPv6, from the text of /proc/net/sockstat. Its line is
// "TCP: inuse 4 orphan 0 tw 2685 alloc 4 mem 188".
func tcpPages(sockstat string) (uint64, error) {
	for line := range strings.Lines(sockstat) {
		rest, ok := strings.CutPrefix(line, "TCP:")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i] != "mem" {
				continue
			}
			pages, err := strconv.ParseUint(fields[i+1], 10, 64)
			if err != nil || pages > math.MaxUint32 {
				return 0, fmt.Errorf("machine: not a number of pages: %q", line)
			}
			return pages, nil
		}
	}
	return 0, fmt.Errorf("machine: /proc/net/sockstat has no memory of TCP")
}
