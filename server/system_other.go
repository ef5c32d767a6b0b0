//go:build !unix

package server

import (
	"errors"
	"syscall"
)

// This system has no limit of descriptors, no locks of directories, no inherited sockets and no
// shared ports.

func descriptorLimit() (int, error)                   { return 0, nil }
func descriptorsInUse() (int, bool)                   { return 0, true }
func lowestFree() (int, bool)                         { return 0, true }
func lock(string) (unlock func(), err error)          { return func() {}, nil }
func isListening(int) bool                            { return true }
func sharePort(string, string, syscall.RawConn) error { return errors.ErrUnsupported }
