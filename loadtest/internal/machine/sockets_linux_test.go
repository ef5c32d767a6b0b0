package machine

import (
	"encoding/binary"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/needs"
)

func TestTargetSockets(t *testing.T) {
	for _, test := range []struct{ name, network, listen, dial string }{
		{"IPv4", "tcp4", "127.0.0.1:0", "127.0.0.1"},
		{"IPv6", "tcp6", "[::1]:0", "::1"},
		{"IPv4 at a listener for both", "tcp", ":0", "127.0.0.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ln, err := net.Listen(test.network, test.listen)
			if err != nil && test.network == "tcp6" {
				t.Skip("no IPv6 here: ", err)
			}
			require.NoError(t, err)
			defer ln.Close()
			port := ln.Addr().(*net.TCPAddr).Port
			wantSockets(t, port, 0, "a listener is no connection")

			n := needs.Connections(t, 600, 300, 2) // more than one chunk of an answer
			clients, servers := make([]net.Conn, n), make([]net.Conn, n)
			for i := range n {
				clients[i], err = net.Dial("tcp", (&net.TCPAddr{IP: net.ParseIP(test.dial), Port: port}).String())
				require.NoError(t, err)
				defer clients[i].Close()
				servers[i], err = ln.Accept()
				require.NoError(t, err)
				defer servers[i].Close()
			}
			wantSockets(t, port, n, "client ends do not count")
			for i := range 100 {
				clients[i].Close()
			}
			wantSockets(t, port, n, "the server holds its end after a close by the client")
			for i := range 30 {
				servers[i].Close()
			}
			wantSockets(t, port, n-30, "a close by both ends")
			for i := n - 30; i < n; i++ {
				servers[i].Close()
			}
			wantSockets(t, port, n-60, "a close by the server first")
		})
	}
}

func wantSockets(t *testing.T, port, want int, why string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		n, err := TargetSockets(port)
		require.NoError(c, err)
		require.Equal(c, want, n)
	}, 5*time.Second, time.Millisecond, why)
}

func TestTargetSocketsOfNoPort(t *testing.T) {
	for _, port := range []int{-1, 0, 65536} {
		_, err := TargetSockets(port)
		require.ErrorContains(t, err, "not a port")
	}
}

// message returns a netlink message.
func message(kind uint16, data ...byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(data)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, make([]byte, 10)...)
	b = append(b, data...)
	return append(b, make([]byte, -len(b)&3)...)
}

func TestCountSockets(t *testing.T) {
	socket := func(port uint16) []byte {
		return message(unix.SOCK_DIAG_BY_FAMILY, append([]byte{unix.AF_INET, 1, 0, 0, byte(port >> 8), byte(port)}, make([]byte, 66)...)...)
	}
	code := func(n int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(n)) }
	two := slices.Concat(socket(9000), socket(40), socket(9001), socket(9000))
	for _, test := range []struct {
		name  string
		chunk []byte
		want  int
		done  bool
		err   error
	}{
		{name: "nothing"},
		{name: "sockets of this port and others", chunk: two, want: 2},
		{name: "the last", chunk: append(two[:len(two):len(two)], message(unix.NLMSG_DONE, code(0)...)...), want: 2, done: true},
		{name: "a failed end", chunk: message(unix.NLMSG_DONE, code(-int32(unix.ENOMEM))...), done: true, err: unix.ENOMEM},
		{name: "an error", chunk: message(unix.NLMSG_ERROR, code(-int32(unix.ENOENT))...), done: true, err: unix.ENOENT},
		{name: "an error without number", chunk: message(unix.NLMSG_ERROR), done: true, err: unix.EINVAL},
		{name: "another message", chunk: append(message(unix.NLMSG_NOOP), socket(9000)...), want: 1},
		{name: "a short socket", chunk: message(unix.SOCK_DIAG_BY_FAMILY, 2, 1, 0, 0, 1), err: unix.EINVAL},
		{name: "a chunk cut off", chunk: socket(9000)[:40], err: unix.EINVAL},
		{name: "a length of nothing", chunk: make([]byte, 16), err: unix.EINVAL},
	} {
		t.Run(test.name, func(t *testing.T) {
			n, done, err := countSockets(test.chunk, 9000)
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.want, n)
			require.Equal(t, test.done, done)
		})
	}
}
