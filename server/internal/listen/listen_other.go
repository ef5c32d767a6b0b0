//go:build !unix

package listen

import (
	"errors"
	"syscall"
)

// lock does nothing: this system has no such locks.
func lock(string) (unlock func(), err error) { return func() {}, nil }

// isListening returns true: this system has no inherited sockets.
func isListening(int) bool { return true }

func sharePort(string, string, syscall.RawConn) error { return errors.ErrUnsupported }
