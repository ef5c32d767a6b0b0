//go:build !unix

package server

import (
	"errors"
	"syscall"
)

// This system has no limit of descriptors, no locks of directories, no inherited sockets and no
// shared ports.

func descriptorLimit() int                            { return 0 }
func descriptorsInUse() int                           { return 0 }
func lowestFree() int                                 { return 0 }
func lock(string) (unlock func(), err error)          { return func() {}, nil }
func isListening(int) bool                            { return true }
func sharePort(string, string, syscall.RawConn) error { return errors.ErrUnsupported }
