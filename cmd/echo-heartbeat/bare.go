package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/server"
)

// A bare server is an echo server on gnet alone. The difference to serve is the cost of the reaper.
type bare struct {
	echo
	out     io.Writer
	addr    net.Addr
	ctx     context.Context
	stopped chan struct{} // closed when the engine was told to stop
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

// serveBare runs a bare server until ctx is done.
func serveBare(ctx context.Context, out io.Writer, cfg server.Config) error {
	defer logging.Of(cfg.Logger).Flush()
	if len(cfg.Addresses) != 1 {
		return usageError{errors.New("--bare needs one --addr")}
	}
	addr, err := net.ResolveTCPAddr("tcp", cfg.Addresses[0])
	if err != nil {
		return usageError{fmt.Errorf("--addr: %w", err)}
	}
	if !cfg.ReusePort || addr.Port == 0 {
		if addr, err = claim(addr); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	b := &bare{out: out, addr: addr, ctx: ctx, stopped: make(chan struct{})}
	err = gnet.Run(b, "tcp://"+addr.String(), gnet.WithNumEventLoop(cfg.NumEventLoop), gnet.WithMulticore(true), gnet.WithReusePort(true),
		gnet.WithReuseAddr(true), gnet.WithLogger(quiet{cfg.Logger}))
	interrupted := ctx.Err() != nil
	cancel()
	if err != nil {
		return err
	}
	<-b.stopped
	if !interrupted {
		return errors.New("the gnet engine died, as it does when a connection cannot be accepted")
	}
	return nil
}

// claim finds out whether an address can be listened on: gnet itself would share a port with the
// server that has it. It replaces the port 0 by a free one.
func claim(addr *net.TCPAddr) (*net.TCPAddr, error) {
	ln, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return nil, err
	}
	return ln.Addr().(*net.TCPAddr), ln.Close()
}

// quiet is a logger for gnet that drops debug and info lines.
type quiet struct{ *slog.Logger }

func (q quiet) Debugf(string, ...any)             {}
func (q quiet) Infof(string, ...any)              {}
func (q quiet) Warnf(format string, args ...any)  { q.Warn(fmt.Sprintf(format, args...)) }
func (q quiet) Errorf(format string, args ...any) { q.Error(fmt.Sprintf(format, args...)) }
func (q quiet) Fatalf(format string, args ...any) { q.Error(fmt.Sprintf(format, args...)) }
