//go:build !linux

package main

import (
	"errors"
	"net"
)

func vanish(net.Conn) error { return errors.ErrUnsupported }
