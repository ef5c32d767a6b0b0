package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/server"
)

// A bare echo is one that gnet runs alone: it shows what the reaper costs, and what happens without it.
type bare struct {
	echo
	out     io.Writer
	addr    net.Addr
	ctx     context.Context
	stopped chan struct{}
}

func (b *bare) OnBoot(eng gnet.Engine) gnet.Action {
	fmt.Fprintf(b.out, "listening on %s, without a reaper; Ctrl-C stops\n", b.addr)
	go func() {
		defer close(b.stopped)
		<-b.ctx.Done()
		_ = eng.Stop(context.Background())
	}()
	return gnet.None
}

// serveBare is serve without idle and server.
func serveBare(ctx context.Context, out io.Writer, cfg server.Config) error {
	if len(cfg.Addresses) != 1 {
		return usageError{errors.New("--bare needs one --addr")}
	}
	addr, err := net.ResolveTCPAddr("tcp", cfg.Addresses[0])
	if err != nil {
		return usageError{fmt.Errorf("--addr: %w", err)}
	}
	if addr.Port == 0 { // so that all loops share one
		ln, err := net.ListenTCP("tcp", addr)
		if err != nil {
			return err
		}
		addr = ln.Addr().(*net.TCPAddr)
		if err := ln.Close(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	b := &bare{out: out, addr: addr, ctx: ctx, stopped: make(chan struct{})}
	err = gnet.Run(b, "tcp://"+addr.String(), gnet.WithNumEventLoop(cfg.NumEventLoop), gnet.WithMulticore(true), gnet.WithReusePort(!cfg.OneAcceptor),
		gnet.WithReuseAddr(true), gnet.WithLogger(quiet{cfg.Logger}))
	asked := ctx.Err() != nil
	cancel()
	if err == nil {
		<-b.stopped
	}
	if err == nil && !asked {
		return errors.New("the gnet engine died, as it does when a connection cannot be accepted")
	}
	return err
}

// quiet is the logger of gnet.
type quiet struct{ *slog.Logger }

func (q quiet) Debugf(string, ...any)             {}
func (q quiet) Infof(string, ...any)              {}
func (q quiet) Warnf(format string, args ...any)  { q.Warn(fmt.Sprintf(format, args...)) }
func (q quiet) Errorf(format string, args ...any) { q.Error(fmt.Sprintf(format, args...)) }
func (q quiet) Fatalf(format string, args ...any) { q.Error(fmt.Sprintf(format, args...)) }
