package server

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"strings"
	"syscall"
)

// ErrBadAddress is returned by Run for an address that nobody could listen on, such as one without a port.
var ErrBadAddress = errors.New("bad address")

// An address is one that nobody else listens on.
type address struct {
	network string
	addr    net.Addr
}

// url returns the address as gnet wants it.
func (a address) url() string { return a.network + "://" + a.addr.String() }

// claim finds out whether an address can be listened on, and which port a port of 0 is. gnet itself would share a port
// with whoever has it, and delete whatever file is at the path of a unix socket.
func claim(addr string, share bool) (address, error) {
	network, at, err := split(addr)
	if err != nil {
		return address{}, err
	}
	if network == "unix" {
		if err := checkSocket(at); err != nil {
			return address{}, err
		}
		return address{network, &net.UnixAddr{Name: at, Net: network}}, nil
	}
	tcp, err := net.ResolveTCPAddr(network, at)
	if dns, ok := errors.AsType[*net.DNSError](err); ok && strings.HasPrefix(at, dns.Name+":") { // the host may be known soon
		return address{}, fmt.Errorf("server: cannot listen: %w", err)
	}
	if err != nil {
		return address{}, fmt.Errorf("server: %w %q: %w", ErrBadAddress, addr, err)
	}
	if share && tcp.Port != 0 {
		return address{network, tcp}, nil
	}
	ln, err := net.ListenTCP(network, tcp)
	if err != nil {
		return address{}, fmt.Errorf("server: cannot listen: %w", err)
	}
	tcp.Port = ln.Addr().(*net.TCPAddr).Port
	return address{network, tcp}, ln.Close()
}

// split takes an address apart into network and address.
func split(addr string) (network, at string, err error) {
	if !strings.Contains(addr, "://") {
		return "tcp", addr, nil
	}
	u, err := url.Parse(addr)
	if err != nil {
		return "", "", fmt.Errorf("server: %w: %w", ErrBadAddress, err)
	}
	switch u.Scheme {
	case "tcp", "tcp4", "tcp6":
		if u.Path != "" {
			return "", "", fmt.Errorf("server: %w %q: a path after host:port", ErrBadAddress, addr)
		}
		return u.Scheme, u.Host, nil
	case "unix":
		if p := path.Join(u.Host, u.Path); p != "" {
			return u.Scheme, p, nil
		}
		return "", "", fmt.Errorf("server: %w %q: no path", ErrBadAddress, addr)
	default:
		return "", "", fmt.Errorf("server: %w %q: the scheme must be tcp, tcp4, tcp6 or unix", ErrBadAddress, addr)
	}
}

// checkSocket refuses a path at which something is that must not be deleted: a file, or the socket of a live server.
func checkSocket(name string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("server: cannot listen: %w", err)
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("server: cannot listen on %s: a file that is not a socket is there", name)
	}
	c, err := net.Dial("unix", name)
	switch {
	case err == nil:
		_ = c.Close()
	case errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist):
		return nil // a socket that a dead server has left behind
	}
	// Alive, or not known to be dead: a full backlog and a socket for datagrams refuse in other ways.
	return fmt.Errorf("server: cannot listen on %s: %w", name, syscall.EADDRINUSE)
}
