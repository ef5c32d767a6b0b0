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

// listenAll listens on all addresses, or on none and returns an error. With share other processes
// may listen on the same TCP ports. A look-up of a name ends with ctx.
func listenAll(ctx context.Context, addrs []string, share bool) (all []net.Listener, err error) {
	for _, text := range addrs {
		var ln net.Listener
		addr, err := parseAddress(text)
		if err == nil {
			ln, err = addr.listen(ctx, share)
		}
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
	// Package idle has keepalive of its own, and asks sockets what only plain TCP answers.
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
	now, err := os.Lstat(s.name)
	s.SetUnlinkOnClose(err == nil && os.SameFile(s.info, now)) // the first Close does that
	return s.UnixListener.Close()
}

// removeDead removes a socket that nothing listens on. It refuses a file of another kind, and the
// socket of a live server.
func removeDead(name string) error {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("%s: a file that is not a socket is there", name)
	}
	c, err := net.Dial("unix", name)
	switch {
	case err == nil:
		_ = c.Close()
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(name)
	case errors.Is(err, os.ErrNotExist):
		return nil
	}
	// The server is alive, or it is not known to be dead: a full backlog or a datagram socket
	// refuse in other ways.
	return fmt.Errorf("%s: %w", name, syscall.EADDRINUSE)
}
