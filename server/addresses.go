package server

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// ErrBadAddress is returned by New for an address that no server could listen on, such as one
// without a port.
var ErrBadAddress = errors.New("server: bad address")

// checkAddresses checks what can be checked without a look-up of names.
func (cfg *Config) checkAddresses() error {
	if strings.Join(cfg.Addresses, "") == "" && len(cfg.Listeners) == 0 {
		return errorf("%w: %s is not set: set it, for example to 127.0.0.1:7000", ErrBadAddress, field("Addresses"))
	}
	var errs []error
	for i, addr := range cfg.Addresses {
		_, err := parseAddress(addr)
		errs = append(errs, err)
		if slices.Contains(cfg.Addresses[:i], addr) && !strings.HasSuffix(addr, ":0") {
			errs = append(errs, errorf("%w: %s has %q twice", ErrBadAddress, field("Addresses"), addr))
		}
	}
	for _, ln := range cfg.Listeners {
		if v := reflect.ValueOf(ln); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			errs = append(errs, errors.New("server: Config.Listeners has a nil listener: leave it out"))
		}
	}
	return errors.Join(errs...)
}

func join(addrs []net.Addr) string {
	var list []string
	for _, addr := range addrs {
		list = append(list, address{addr.Network(), addr.String()}.String())
	}
	return strings.Join(list, ", ")
}

// longestUnix is the number of bytes that a path has at most on Linux.
const longestUnix = 107

// An address is what one listener listens on.
type address struct {
	network string // tcp, tcp4, tcp6, unix or fd
	at      string // host:port, the path of a socket, or the number of a descriptor
}

// parseAddress returns an address from host:port, or from a URL. It looks up no host. The text
// after unix:// is the path as it is: nothing is decoded.
func parseAddress(addr string) (address, error) {
	network, at, isURL := strings.Cut(addr, "://")
	if !isURL {
		network, at = "tcp", addr
	}
	if mistake := mistake(network, at); mistake != "" {
		return address{}, fmt.Errorf("%w %q: %s", ErrBadAddress, addr, mistake)
	}
	return address{network, at}, nil
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
		if n := len(strings.TrimPrefix(at, "@")); n > longestUnix {
			return fmt.Sprintf("the path has %d bytes: set at most %d", n, longestUnix)
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
func (a address) String() string {
	if strings.HasPrefix(a.network, "tcp") {
		return a.at
	}
	return a.network + "://" + a.at
}
