package main

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// vanish closes a connection and sends nothing to the peer, as a machine does that loses power. In
// repair mode (TCP_REPAIR, made for moving live connections between hosts) the kernel drops the
// socket without a FIN. This needs CAP_NET_ADMIN.
func vanish(c net.Conn) error {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1)
	})
	if err = errors.Join(err, set); err != nil {
		return err
	}
	return c.Close()
}
