// Command netpoll is an echo server on cloudwego/netpoll, an engine that accepts by itself.
//
//	go -C examples run ./netpoll
//	nc 127.0.0.1 9002
//
// A connection of a client that sends nothing for -read-timeout is closed. Other limits are those
// of idlenet.Config.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cloudwego/netpoll"

	"github.com/idlewheel/idlewheel/idlenet"
)

// A socket offers what the Reaper needs of a connection of netpoll.
type socket struct{ netpoll.Connection }

// SetReadDeadline closes the connection, because no Read waits that the deadline could end.
func (s *socket) SetReadDeadline(time.Time) error { return s.Close() }

// SyscallConn gives access to the descriptor.
func (s *socket) SyscallConn() (syscall.RawConn, error) { return rawConn{s}, nil }

type rawConn struct{ *socket }

// Control calls a function with the descriptor, unless the connection is closed.
func (c rawConn) Control(f func(fd uintptr)) error {
	if !c.IsActive() {
		return net.ErrClosed
	}
	f(uintptr(c.Connection.(netpoll.Conn).Fd()))
	return nil
}

// Read and Write are required by syscall.RawConn. The Reaper does not call them.
func (rawConn) Read(func(fd uintptr) bool) error  { return syscall.ENOTSUP }
func (rawConn) Write(func(fd uintptr) bool) error { return syscall.ENOTSUP }

// A server is an echo server.
type server struct{ reaper *idlenet.Reaper }

func (s *server) open(c netpoll.Connection) context.Context {
	own := &socket{c}
	if _, err := s.reaper.Admit(own); err != nil {
		_ = c.Close()
		return context.Background()
	}
	_ = c.AddCloseCallback(func(netpoll.Connection) error { return s.reaper.Forget(own) })
	return context.WithValue(context.Background(), socketKey{}, own) // for s.reaper.Conn in a handler
}

type socketKey struct{}

func echo(_ context.Context, c netpoll.Connection) error {
	data, err := c.Reader().Next(c.Reader().Len())
	if err != nil {
		return err
	}
	if _, err := c.Writer().WriteBinary(data); err != nil {
		return err
	}
	return c.Writer().Flush()
}

func main() {
	addr := flag.String("addr", "127.0.0.1:9002", "`host:port` to listen on")
	read := flag.Duration("read-timeout", time.Minute, "silence after which a connection is closed")
	flag.Parse()
	reaper, err := idlenet.New(idlenet.Config{
		ReadTimeout: *read,
		OnReap:      func(c net.Conn, reason *idlenet.ReapError) { log.Printf("%v closed: %v", c.RemoteAddr(), reason) },
	})
	if err != nil {
		log.Fatal(err)
	}
	inner, err := netpoll.CreateListener("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	s := &server{reaper}
	loop, err := netpoll.NewEventLoop(echo, netpoll.WithOnPrepare(s.open))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() {
		ended, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = loop.Shutdown(ended)
	})
	log.Printf("listening on %v", inner.Addr())
	if err := loop.Serve(inner); err != nil {
		log.Fatal(err)
	}
}
