package server

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// ErrBadAddress is returned by New for an address that no server could listen on, such as one
// without a port.
var ErrBadAddress = errors.New("server: bad address")

// An address is what one listener listens on.
type address struct {
	network string
	addr    net.Addr
}

// urlsOf returns addresses as gnet expects them.
func urlsOf(addrs []address) []string {
	var urls []string
	for _, a := range addrs {
		urls = append(urls, a.network+"://"+a.addr.String())
	}
	return urls
}

// checkAddresses checks what can be checked without a look-up of names.
func (cfg *Config) checkAddresses() error {
	if strings.Join(cfg.Addresses, "") == "" {
		return fmt.Errorf("%w: Config.Addresses is not set: set it, for example to 127.0.0.1:7000", ErrBadAddress)
	}
	var errs []error
	unix := false
	for i, addr := range cfg.Addresses {
		network, _, err := split(addr)
		errs = append(errs, err)
		unix = unix || network == "unix"
		if slices.Contains(cfg.Addresses[:i], addr) && !strings.HasSuffix(addr, ":0") {
			errs = append(errs, fmt.Errorf("%w: Config.Addresses has %q twice", ErrBadAddress, addr))
		}
	}
	if cfg.ReusePort && unix {
		errs = append(errs, errors.New("server: Config.ReusePort is set, and Config.Addresses has a unix socket, which cannot be shared: "+
			"run a server of its own for it"))
	}
	if cfg.ReusePort && cfg.OneAcceptor {
		errs = append(errs, errors.New("server: Config.ReusePort and Config.OneAcceptor are set: set one of them, "+
			"because one acceptor cannot share a port"))
	}
	return errors.Join(errs...)
}

// join lists addresses as text.
func join(addrs []address) string {
	var list []string
	for _, a := range addrs {
		list = append(list, a.addr.String())
	}
	return strings.Join(list, ", ")
}

// hasUnix reports whether one of the addresses is a unix socket.
func hasUnix(addrs []address) bool {
	return slices.ContainsFunc(addrs, func(a address) bool { return a.network == "unix" })
}

// claimAll finds out whether addresses can be listened on, and replaces the port 0 by a free port.
// gnet itself would share a port with the server that has it, and delete any file at the path of a
// unix socket. If share is true, TCP ports may be in use.
func claimAll(urls []string, share bool) (addrs []address, err error) {
	for _, u := range urls {
		addr, release, err := claim(u, share)
		if err != nil {
			return nil, err
		}
		defer release() // when all have been claimed, so that no two of them overlap
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// claim is claimAll for one address, which is in use until release is called.
func claim(addr string, share bool) (_ address, release func(), err error) {
	network, at, err := split(addr)
	if err != nil {
		return address{}, nil, err
	}
	if network == "unix" {
		return address{network, &net.UnixAddr{Name: at, Net: network}}, func() {}, checkSocket(at)
	}
	tcp, err := net.ResolveTCPAddr(network, at)
	if err != nil {
		return address{}, nil, fmt.Errorf("server: cannot listen: %w", err)
	}
	if share && tcp.Port != 0 {
		return address{network, tcp}, func() {}, nil
	}
	ln, err := net.ListenTCP(network, tcp)
	if err != nil {
		return address{}, nil, fmt.Errorf("server: cannot listen: %w", err)
	}
	tcp.Port = ln.Addr().(*net.TCPAddr).Port
	return address{network, tcp}, func() { _ = ln.Close() }, nil
}

// split splits an address into the network and the host and port, or path, and checks their form.
func split(addr string) (network, at string, err error) {
	network, at = "tcp", addr
	if strings.Contains(addr, "://") {
		u, err := url.Parse(addr)
		if err != nil {
			return "", "", fmt.Errorf("%w: %w", ErrBadAddress, err)
		}
		network, at = u.Scheme, u.Host
		switch {
		case network == "unix" && path.Join(u.Host, u.Path) == "":
			return "", "", fmt.Errorf("%w %q: no path", ErrBadAddress, addr)
		case network == "unix":
			return network, path.Join(u.Host, u.Path), nil
		case network != "tcp" && network != "tcp4" && network != "tcp6":
			return "", "", fmt.Errorf("%w %q: the scheme must be tcp, tcp4, tcp6 or unix", ErrBadAddress, addr)
		case u.Path != "":
			return "", "", fmt.Errorf("%w %q: a path after host:port", ErrBadAddress, addr)
		}
	}
	_, port, err := net.SplitHostPort(at)
	if err == nil {
		_, err = net.LookupPort(network, port)
	}
	if err != nil {
		return "", "", fmt.Errorf("%w %q: %w", ErrBadAddress, addr, err)
	}
	return network, at, nil
}

// checkSocket refuses a path with something that must not be deleted: a file, or the socket of a
// live server.
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
		return nil // a dead server has left the socket behind
	}
	// The server is alive, or it is not known to be dead: a full backlog or a datagram socket
	// refuse in other ways.
	return fmt.Errorf("server: cannot listen on %s: %w", name, syscall.EADDRINUSE)
}
