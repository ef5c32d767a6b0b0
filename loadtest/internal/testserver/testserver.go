// Package testserver provides servers for tests of the load tester: echo servers, and servers with
// faults.
package testserver

import (
	"bufio"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

// Serve runs a server until the test ends and returns its address. It calls handle in a goroutine
// per connection and closes the connection afterwards. handle must return when the client closes
// its end.
func Serve(t testing.TB, handle func(net.Conn)) string {
	t.Helper()
	var running sync.WaitGroup
	t.Cleanup(running.Wait) // after the cleanup of the listener, which closes it
	ln := sockets.Listen(t, "tcp4", "127.0.0.1:0")
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
	return ln.Addr().String()
}

// Echo returns all bytes it receives.
func Echo(c net.Conn) { _, _ = io.Copy(c, c) }

// Discard reads and never answers.
func Discard(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// Leave sends a greeting, and reads without an answer. It returns after timeout without a byte.
func Leave(timeout time.Duration, greeting string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.WriteString(c, greeting)
		for b := make([]byte, 1024); ; {
			_ = c.SetReadDeadline(time.Now().Add(timeout))
			if _, err := c.Read(b); err != nil {
				return
			}
		}
	}
}

// Reap echoes lines. After timeout without a line it sends goodbye and returns.
func Reap(timeout time.Duration, goodbye string) func(net.Conn) {
	return func(c net.Conn) {
		for lines := bufio.NewReader(c); ; {
			_ = c.SetReadDeadline(time.Now().Add(timeout))
			line, err := lines.ReadSlice('\n')
			if err != nil {
				_, _ = io.WriteString(c, goodbye)
				return
			}
			_, _ = c.Write(line)
		}
	}
}
