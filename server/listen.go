package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrBadAddress is returned by New for an address that no server could listen on, such as one
// without a port.
var ErrBadAddress = errors.New("server: bad address")

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

// parseAddress returns an address from host:port, or from a URL, and what is wrong with it. It
// looks up no host. The text after unix:// is the path as it is: nothing is decoded.
func parseAddress(addr string) (_ address, mistake string) {
	network, at, isURL := strings.Cut(addr, "://")
	if !isURL {
		network, at = "tcp", addr
	}
	return address{network, at}, mistakeOf(network, at)
}

// mistakeOf returns what is wrong with an address, or "".
func mistakeOf(network, at string) string {
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
			var wrong *net.AddrError // its text has the address as well
			if errors.As(err, &wrong) {
				return wrong.Err
			}
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

// listenAll listens on all addresses, or on none and returns an error. With share other processes
// may listen on the same TCP ports. A look-up of a name ends with ctx.
func listenAll(ctx context.Context, addrs []string, share bool) (all []net.Listener, err error) {
	for _, text := range addrs {
		addr, _ := parseAddress(text) // Config.check has checked it
		ln, err := addr.listen(ctx, share)
		if err != nil {
			for _, ln := range all {
				_ = ln.Close()
			}
			if errors.Is(err, syscall.EADDRINUSE) {
				err = fmt.Errorf("%w: stop the server that listens there, or choose another address", err)
			}
			return nil, fmt.Errorf("server: cannot listen: %w", err)
		}
		all = append(all, ln)
	}
	return all, nil
}

func (a address) listen(ctx context.Context, share bool) (net.Listener, error) {
	switch a.network {
	case "unix":
		return listenUnix(a.at)
	case "fd":
		return inherit(a.at)
	}
	// Package idle has keepalive of its own. Nothing here is tested with Multipath TCP over gnet.
	cfg := net.ListenConfig{KeepAlive: -1}
	cfg.SetMultipathTCP(false)
	if share {
		cfg.Control = sharePort
	}
	return cfg.Listen(ctx, a.network, a.at)
}

// inherit returns the listener that the process was started with, by systemd for example.
func inherit(number string) (net.Listener, error) {
	fd, _ := strconv.Atoi(number) // parseAddress has checked it
	if !isListening(fd) {         // it may be a file of somebody else
		return nil, fmt.Errorf("fd://%s is not an inherited socket that listens", number)
	}
	file := os.NewFile(uintptr(fd), "fd://"+number)
	defer file.Close()
	return net.FileListener(file)
}

// listenUnix listens on a unix socket. It replaces the socket that a dead server has left behind,
// and nothing else.
func listenUnix(name string) (net.Listener, error) {
	addr := &net.UnixAddr{Name: name, Net: "unix"}
	if strings.HasPrefix(name, "@") { // it leaves nothing behind
		return net.ListenUnix("unix", addr)
	}
	// Two servers that start at the same time must not remove each other's socket.
	unlock, err := lock(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeDead(name); err != nil {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", addr)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(name)
	return &socket{UnixListener: ln, name: name, info: info}, err
}

// A socket is a listener with a file. It removes the file when it is closed, unless another server
// has replaced it.
type socket struct {
	*net.UnixListener
	name string
	info os.FileInfo
}

func (s *socket) Close() error {
	now, _ := os.Lstat(s.name)
	s.SetUnlinkOnClose(os.SameFile(s.info, now)) // the first Close does that; false if there is none
	return s.UnixListener.Close()
}

// removeDead removes a socket that nothing listens on. It refuses a file of another kind. The
// socket of a live server, which may not listen yet, stays, and bind refuses its address. A full
// backlog and a datagram socket refuse a connection in other ways than a dead server.
func removeDead(name string) error {
	if info, err := os.Lstat(name); err == nil && info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%s: a file that is not a socket is there", name)
	}
	c, err := net.Dial("unix", name)
	if err == nil {
		_ = c.Close()
	}
	if errors.Is(err, syscall.ECONNREFUSED) && !isBound(name) {
		return os.Remove(name)
	}
	return nil
}

// isBound reports whether a process has bound a unix socket to a path, on Linux. It may not listen
// yet.
func isBound(name string) bool {
	bound, _ := os.ReadFile("/proc/net/unix") // elsewhere there is no such file
	return strings.Contains(string(bound), " "+name+"\n")
}
