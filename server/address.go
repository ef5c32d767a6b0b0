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
	const listed, reusePort, oneAcceptor = field("Addresses"), field("ReusePort"), field("OneAcceptor")
	if strings.Join(cfg.Addresses, "") == "" {
		return errorf("%w: %s is not set: set it, for example to 127.0.0.1:7000", ErrBadAddress, listed)
	}
	var errs []error
	unix := false
	for i, addr := range cfg.Addresses {
		network, _, err := split(addr)
		errs = append(errs, err)
		unix = unix || network == "unix"
		if slices.Contains(cfg.Addresses[:i], addr) && !strings.HasSuffix(addr, ":0") {
			errs = append(errs, errorf("%w: %s has %q twice", ErrBadAddress, listed, addr))
		}
	}
	if cfg.ReusePort && unix {
		errs = append(errs, errorf("server: %s is set, and %s has a unix socket, which cannot be shared: run a server of its own for it",
			reusePort, listed))
	}
	if cfg.ReusePort && cfg.OneAcceptor {
		errs = append(errs, errorf("server: %s and %s are set: set one of them, because one acceptor cannot share a port",
			reusePort, oneAcceptor))
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
		if network == "unix" {
			at = path.Join(u.Host, u.Path)
		}
		if mistake := urlMistake(u, addr, at); mistake != "" {
			return "", "", fmt.Errorf("%w %q: %s", ErrBadAddress, addr, mistake)
		}
		if network == "unix" {
			return network, at, nil
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

// urlMistake returns what is wrong with a URL, or "". at is its host and port, or its path.
func urlMistake(u *url.URL, addr, at string) string {
	unix := u.Scheme == "unix"
	switch {
	case !unix && u.Scheme != "tcp" && u.Scheme != "tcp4" && u.Scheme != "tcp6":
		return "the scheme must be tcp, tcp4, tcp6 or unix"
	case strings.ContainsAny(addr+at, "?#"):
		return "a query or a fragment: neither ? nor # can be in an address"
	case u.User != nil || strings.HasPrefix(at, "@"):
		return "users and abstract sockets are not supported: set a host and a port, or a path as in unix:///run/chat.sock"
	case unix && at == "":
		return "no path"
	case unix && gnetPath(at) != at:
		return "gnet cannot listen on this path: set an absolute one without % and control characters"
	case !unix && u.Path != "":
		return "a path after host:port"
	}
	return ""
}

// gnetPath returns the path that gnet takes from unix:// and a path. gnet deletes the file there.
func gnetPath(name string) string {
	u, err := url.Parse("unix://" + name)
	if err != nil {
		return ""
	}
	return path.Join(u.Host, u.Path)
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
