// Package accept pauses accepting on the listening sockets of an engine that keeps them to itself.
//
// On Linux it finds the TCP sockets of the process in /proc and pauses them in one of two ways.
//
// A filter on the sockets drops every packet, and clients retry. Since 2026 the kernel requires
// CAP_NET_ADMIN for a filter on a TCP socket.
//
// Without CAP_NET_ADMIN the pollers of the engine stop watching the sockets, and the backlog of
// each socket is made as short as possible. The kernel completes one connection per socket, which
// waits to be accepted, and drops the others. With the usual backlog thousands of connections would
// wait, and all of them would be accepted at once when there is room for a few.
//
// Other sockets cannot be paused: unix sockets, and TCP on other systems.
package accept

import (
	"os"
	"strconv"
	"strings"
)

// MaxBacklog returns the number of connections that may wait to be accepted by one listener.
func MaxBacklog() int {
	const usual = 4096 // net.core.somaxconn
	b, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		return usual
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return usual
	}
	return n
}
