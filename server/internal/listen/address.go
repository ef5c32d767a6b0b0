// Package listen opens the listeners of a server.
package listen

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// ErrBadAddress means that no server could listen on an address, such as one without a port.
var ErrBadAddress = errors.New("server: bad address")

// An Address is what one listener listens on.
type Address struct {
	// Network is tcp, tcp4, tcp6, unix or fd.
	Network string
	// At is host:port, the path of a socket, or the number of a descriptor.
	At string
}

// Parse returns an Address from host:port, or from a URL with the scheme tcp, tcp4, tcp6, unix or
// fd. It looks up no host. What follows unix:// is the path as it is: nothing is decoded.
func Parse(addr string) (Address, error) {
	network, at, isURL := strings.Cut(addr, "://")
	if !isURL {
		network, at = "tcp", addr
	}
	if mistake := mistake(network, at); mistake != "" {
		return Address{}, fmt.Errorf("%w %q: %s", ErrBadAddress, addr, mistake)
	}
	return Address{network, at}, nil
}

// mistake returns what is wrong with an address, or "".
func mistake(network, at string) string {
	switch network {
	case "tcp", "tcp4", "tcp6":
		if path, isUnix := strings.CutPrefix(at, "unix:"); isUnix || strings.HasPrefix(path, "/") {
			return "for a unix socket write unix:///path"
		}
		_, port, err := net.SplitHostPort(at)
		if err == nil {
			_, err = net.LookupPort(network, port)
		}
		if err != nil {
			return err.Error()
		}
	case "unix":
		if !strings.HasPrefix(at, "/") && !strings.HasPrefix(at, "@") || len(at) < 2 {
			return "set an absolute path, as in unix:///run/chat.sock, or @ and the name of an abstract socket"
		}
	case "fd":
		if fd, err := strconv.Atoi(at); err != nil || fd < 3 {
			return "set the number of an inherited socket, which is 3 or more"
		}
	default:
		return "the scheme must be tcp, tcp4, tcp6, unix or fd"
	}
	return ""
}

// String returns the address as a URL, except for TCP.
func (a Address) String() string {
	if strings.HasPrefix(a.Network, "tcp") {
		return a.At
	}
	return a.Network + "://" + a.At
}
