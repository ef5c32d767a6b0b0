package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"go.uber.org/zap"
	"trpc.group/trpc-go/tnet"
	tnetlog "trpc.group/trpc-go/tnet/log"

	"github.com/idlewheel/idlewheel/idle"
)

// A serverKind is an echo server that closes a connection after its peer has been silent for a
// timeout. It reports its address and serves until the process ends.
type serverKind struct {
	name  string
	note  string
	reaps bool
	early bool // it may close a connection before its timeout
	serve func(timeout time.Duration, started func(net.Addr)) error
}

func serverKinds() []serverKind {
	return []serverKind{
		{name: "gnet alone", note: "nothing is closed", serve: serveAlone},
		{name: "gnet, idle.Middleware", note: "`ReadTimeout`, as in the README", reaps: true, serve: serveIdle},
		{name: "gnet, time.AfterFunc", note: "one per connection in its Context, reset by each message", reaps: true, serve: serveAfterFunc},
		{name: "gnet, scan in OnTick", note: "a map of all connections behind a lock, scanned once a second", reaps: true, serve: serveScan},
		{name: "tnet", note: "`tnet.WithTCPIdleTimeout`; its clock moves once a second, so it may close early", reaps: true, early: true, serve: serveTnet},
		{name: "goroutine, 64-byte buffer", note: "`net`, SetReadDeadline before each Read: the minimum", reaps: true, serve: serveSmall},
		{name: "goroutine, bufio.Reader", note: "the same with a bufio.Reader of its default size, 4 KiB", reaps: true, serve: serveBuffered},
	}
}

// A sample has the figures that a server reports about its process.
type sample struct {
	CPU      time.Duration `json:"cpu"`
	Heap     int64         `json:"heap"` // and stacks
	Resident int64         `json:"resident"`
}

// serve runs a server, prints its address, and prints a sample for each line it reads. The line
// "memory" collects garbage first.
func serve(j job, in io.Reader, out io.Writer) error {
	var kind serverKind
	for _, k := range serverKinds() {
		if k.name == j.Subject {
			kind = k
		}
	}
	if kind.serve == nil {
		return fmt.Errorf("no subject %q", j.Subject)
	}
	failed := make(chan error, 1)
	started := make(chan net.Addr, 1)
	go func() { failed <- kind.serve(j.Timeout, func(a net.Addr) { started <- a }) }()
	select {
	case err := <-failed:
		return fmt.Errorf("%s: %w", j.Subject, err)
	case a := <-started:
		fmt.Fprintln(out, a)
	}
	reply := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		s := sample{CPU: processCPU()}
		if lines.Text() == "memory" {
			s.Heap = heapBytes()
			s.Resident = residentBytes()
		}
		if err := reply.Encode(s); err != nil {
			return err
		}
	}
	return nil // the parent has closed its end
}

// --- gnet

// echo returns the received bytes. It reports the address once the engine has booted.
type echo struct {
	gnet.BuiltinEventEngine
	booted func()
}

func (h *echo) OnBoot(gnet.Engine) gnet.Action {
	h.booted()
	return gnet.None
}

func (h *echo) OnTraffic(c gnet.Conn) gnet.Action {
	b, _ := c.Next(-1)
	if _, err := c.Write(b); err != nil {
		return gnet.Close
	}
	return gnet.None
}

// runEngine runs gnet on a free port.
func runEngine(started func(net.Addr), handler func(booted func()) (gnet.EventHandler, error), options ...gnet.Option) error {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := free.Addr()
	if err := free.Close(); err != nil {
		return err
	}
	h, err := handler(func() { started(addr) })
	if err != nil {
		return err
	}
	options = append(options, gnet.WithMulticore(true), gnet.WithLogger(silent{}))
	if err := gnet.Run(h, "tcp://"+addr.String(), options...); err != nil {
		return err
	}
	return errors.New("the engine has stopped")
}

// silent is a logger without output: standard output is for the parent, and Run reports failures.
type silent struct{}

func (silent) Debugf(string, ...any) {}
func (silent) Infof(string, ...any)  {}
func (silent) Warnf(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) {}

func serveAlone(_ time.Duration, started func(net.Addr)) error {
	return runEngine(started, func(booted func()) (gnet.EventHandler, error) { return &echo{booted: booted}, nil })
}

func serveIdle(timeout time.Duration, started func(net.Addr)) error {
	return runEngine(started, func(booted func()) (gnet.EventHandler, error) {
		// At the end all clients become silent at the same moment. The other servers here do not
		// take that for an outage of their own, so this one must not either.
		return idle.Middleware(&echo{booted: booted}, idle.Config{ReadTimeout: timeout, Tick: tick, OutageGrace: -1})
	})
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

func serveAfterFunc(timeout time.Duration, started func(net.Addr)) error {
	return runEngine(started, func(booted func()) (gnet.EventHandler, error) {
		return &afterFuncEcho{echo: echo{booted: booted}, timeout: timeout}, nil
	})
}

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

func serveScan(timeout time.Duration, started func(net.Addr)) error {
	return runEngine(started, func(booted func()) (gnet.EventHandler, error) {
		return &scanEcho{
			echo: echo{booted: booted}, timeout: timeout, origin: time.Now(), conns: map[gnet.Conn]*atomic.Int64{},
		}, nil
	}, gnet.WithTicker(true))
}

// --- tnet

func serveTnet(timeout time.Duration, started func(net.Addr)) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	tnetlog.Default = zap.NewNop().Sugar() // standard output is for the parent
	service, err := tnet.NewTCPService(l, echoTnet, tnet.WithTCPIdleTimeout(timeout))
	if err != nil {
		return err
	}
	started(l.Addr())
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

// --- a goroutine for each connection

func serveGoroutines(started func(net.Addr), handle func(net.Conn)) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	started(l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			handle(c)
			_ = c.Close() // nothing is left to be lost
		}()
	}
}

func serveSmall(timeout time.Duration, started func(net.Addr)) error {
	return serveGoroutines(started, func(c net.Conn) {
		buffer := make([]byte, 64)
		for c.SetReadDeadline(time.Now().Add(timeout)) == nil {
			n, err := c.Read(buffer)
			if err != nil {
				return
			}
			if _, err := c.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
}

func serveBuffered(timeout time.Duration, started func(net.Addr)) error {
	return serveGoroutines(started, func(c net.Conn) {
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
	})
}
