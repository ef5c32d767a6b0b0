package main

import (
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// notify tells systemd about the state of the service, as in "READY=1". It follows the protocol of
// https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html. If systemd does not wait
// for notifications, it does nothing.
func notify(state string) error {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	conn, err := net.Dial("unixgram", name)
	if err != nil {
		return err
	}
	defer conn.Close()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil { // RELOADING=1 needs it
		return err
	}
	_ = conn.SetDeadline(time.Now().Add(time.Second)) // systemd may be busy
	_, err = fmt.Fprintf(conn, "%s\nMONOTONIC_USEC=%d\n", state, now.Nano()/1000)
	return err
}
