// Package scripted gives tests of the load tester servers that do what a script says, right or wrong.
package testserver

import (
	"bufio"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Serve runs a server until the test ends and returns its address. handle owns the connection, which is closed after it; it has to return
// when the client is gone.
func Serve(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	t.Cleanup(func() {
		_ = ln.Close()
		running.Wait()
	})
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

// Echo answers as it should.
func Echo(c net.Conn) { _, _ = io.Copy(c, c) }

// Discard never answers.
func Discard(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// Say says something, and nothing after it.
func Say(text string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.WriteString(c, text)
		Discard(c)
	}
}

// Reap echoes lines, and closes who sends none for a time, with some last words.
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
