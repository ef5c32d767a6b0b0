package main

import (
	"bufio"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"
	"go.uber.org/zap"
	"trpc.group/trpc-go/tnet"
	tnetlog "trpc.group/trpc-go/tnet/log"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/idlenet"
)

const (
	tick     = 100 * time.Millisecond // of the wheels
	scanning = time.Second            // between two scans

	freePort    = "127.0.0.1:0"
	nettySource = "netty/NettyIdle.java"

	base  = "gnet alone" // closes nothing, and has the ratio 1 in columns with ratios
	netty = "Netty"      // is a Java program, and answers no question
)

// A kind is an echo server that closes a connection after its peer has been silent for a timeout.
// Serve announces the address and serves until the process ends; nil for Netty.
type kind struct {
	name, note string
	serve      func(j job) error
}

func (k kind) String() string { return k.name }

func kinds() []kind {
	return []kind{
		{base, "nothing is closed", serveAlone},
		{"gnet, idle.Middleware", "`ReadTimeout`, as in the README", serveIdle},
		{"gnet, time.AfterFunc", "one per connection in its Context, reset by each message", serveAfterFunc},
		{"gnet, scan in OnTick", "a map of all connections behind a lock, scanned once a second", serveScan},
		{"tnet", "`tnet.WithTCPIdleTimeout`; its clock moves once a second, so it may close early", onPort(serveTnet)},
		{"goroutine, idlenet", "`idlenet.Listen`, `ReadTimeout`, a goroutine with a buffer of 64 bytes", onPort(serveIdlenet)},
		{"goroutine, deadline, 64-byte buffer", "SetReadDeadline before each Read: the minimum on package net", onPort(serveSmallBuffers)},
		{"goroutine, deadline, bufio.Reader", "the same with a bufio.Reader of its default size, 4 KiB", onPort(serveBufio)},
		{netty, "`IdleStateHandler` with its defaults on two event loops, in a Java VM", nil},
	}
}

// silent logs nothing: standard output is for the parent, and failures are returned.
var silent = zap.NewNop().Sugar()

// --- gnet

// echo returns the received bytes. It announces the address once the engine has booted.
type echo struct{ gnet.BuiltinEventEngine }

func (*echo) OnBoot(e gnet.Engine) gnet.Action {
	fd, err := e.Dup()
	if err != nil {
		panic(err) // ends the child
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		panic(err)
	}
	announce(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port})
	return gnet.None
}

func (*echo) OnTraffic(c gnet.Conn) gnet.Action {
	b, _ := c.Next(-1)
	if _, err := c.Write(b); err != nil {
		return gnet.Close
	}
	return gnet.None
}

// runEngine runs gnet on a free port.
func runEngine(h gnet.EventHandler, options ...gnet.Option) error {
	options = append(options, gnet.WithMulticore(true), gnet.WithLogger(silent))
	return gnet.Run(h, "tcp://"+freePort, options...)
}

func serveAlone(job) error { return runEngine(&echo{}) }

func serveIdle(j job) error {
	h, err := idle.Middleware(&echo{}, idle.Config{ReadTimeout: j.Timeout, Tick: tick, OutageGrace: j.Grace})
	if err != nil {
		return err
	}
	return runEngine(h)
}

// afterFuncEcho has a timer for each connection.
type afterFuncEcho struct {
	echo
	timeout time.Duration
}

func (h *afterFuncEcho) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	// Close fails if the connection is closed already.
	c.SetContext(time.AfterFunc(h.timeout, func() { _ = c.Close() }))
	return nil, gnet.None
}

func (h *afterFuncEcho) OnTraffic(c gnet.Conn) gnet.Action {
	c.Context().(*time.Timer).Reset(h.timeout)
	return h.echo.OnTraffic(c)
}

func (h *afterFuncEcho) OnClose(c gnet.Conn, _ error) gnet.Action {
	c.Context().(*time.Timer).Stop()
	return gnet.None
}

func serveAfterFunc(j job) error { return runEngine(&afterFuncEcho{timeout: j.Timeout}) }

// scanEcho scans all connections in OnTick.
type scanEcho struct {
	echo
	timeout time.Duration
	origin  time.Time

	mu    sync.Mutex
	conns map[gnet.Conn]*atomic.Int64 // when the peer was heard, since the origin
}

func (h *scanEcho) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	heard := new(atomic.Int64)
	heard.Store(int64(time.Since(h.origin)))
	c.SetContext(heard)
	h.mu.Lock()
	h.conns[c] = heard
	h.mu.Unlock()
	return nil, gnet.None
}

func (h *scanEcho) OnTraffic(c gnet.Conn) gnet.Action {
	c.Context().(*atomic.Int64).Store(int64(time.Since(h.origin)))
	return h.echo.OnTraffic(c)
}

func (h *scanEcho) OnClose(c gnet.Conn, _ error) gnet.Action {
	h.mu.Lock()
	delete(h.conns, c)
	h.mu.Unlock()
	return gnet.None
}

func (h *scanEcho) OnTick() (time.Duration, gnet.Action) {
	before := int64(time.Since(h.origin) - h.timeout)
	h.mu.Lock()
	defer h.mu.Unlock()
	for c, heard := range h.conns {
		if heard.Load() < before {
			_ = c.Close() // only queues
		}
	}
	return scanning, gnet.None
}

func serveScan(j job) error {
	h := &scanEcho{timeout: j.Timeout, origin: time.Now(), conns: map[gnet.Conn]*atomic.Int64{}}
	return runEngine(h, gnet.WithTicker(true))
}

// --- package net

// onPort serves on a free port.
func onPort(serve func(net.Listener, job) error) func(job) error {
	return func(j job) error {
		l, err := net.Listen("tcp", freePort)
		if err != nil {
			return err
		}
		announce(l.Addr())
		return serve(l, j)
	}
}

func serveTnet(l net.Listener, j job) error {
	tnetlog.Default = silent
	service, err := tnet.NewTCPService(l, echoTnet, tnet.WithTCPIdleTimeout(j.Timeout))
	if err != nil {
		return err
	}
	return service.Serve(context.Background())
}

// echoTnet returns the received bytes.
func echoTnet(c tnet.Conn) error {
	b, err := c.Next(c.Len())
	if err == nil {
		_, err = c.Write(b)
	}
	c.Release()
	return err
}

// serveGoroutines calls handle with each connection of a listener, on a goroutine of its own.
func serveGoroutines(l net.Listener, timeout time.Duration, handle func(net.Conn, time.Duration)) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			handle(c, timeout)
			_ = c.Close() // nothing is left to be lost
		}()
	}
}

func serveIdlenet(inner net.Listener, j job) error {
	l, err := idlenet.Listen(inner, idlenet.Config{ReadTimeout: j.Timeout, Tick: tick, OutageGrace: j.Grace})
	if err != nil {
		return err
	}
	return serveGoroutines(l, 0, echoAll)
}

func serveSmallBuffers(l net.Listener, j job) error { return serveGoroutines(l, j.Timeout, echoAll) }

func serveBufio(l net.Listener, j job) error { return serveGoroutines(l, j.Timeout, echoLines) }

// echoAll sets a deadline before each read, if there is a timeout.
func echoAll(c net.Conn, timeout time.Duration) {
	buffer := make([]byte, 64)
	for timeout == 0 || c.SetReadDeadline(time.Now().Add(timeout)) == nil {
		n, err := c.Read(buffer)
		if err != nil {
			return
		}
		if _, err := c.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func echoLines(c net.Conn, timeout time.Duration) {
	r := bufio.NewReader(c)
	for c.SetReadDeadline(time.Now().Add(timeout)) == nil {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		if _, err := c.Write(line); err != nil {
			return
		}
	}
}
