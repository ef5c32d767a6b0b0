package machine

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// KernelMemory returns the kernel memory of sockets in bytes: the slabs, which hold sockets, files,
// inodes and dentries, and the TCP buffers.
//
// It covers the whole machine: both ends of a connection if both are here, and every other use of
// slabs, such as the dentries of files. Only the difference of two readings tells the cost of
// connections, and only if the machine does nothing else. Heads of buffers count twice while data
// waits in them. Page tables and vmalloc memory, such as the descriptor table of a large process,
// are not included.
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

// tcpPages returns the pages of TCP buffers, IPv4 and IPv6, from the text of /proc/net/sockstat.
// Its line is "TCP: inuse 4 orphan 0 tw 2685 alloc 4 mem 188".
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
