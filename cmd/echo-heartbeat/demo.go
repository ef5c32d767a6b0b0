package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
)

const (
	minDemoTimeout = 100 * time.Millisecond // below it the clients of a busy machine are late
	maxDemoTimeout = 5 * time.Second        // the demo then ends within 20 s
	maxDemoClients = 3000
	demoPage       = "127.0.0.1:7080" // another port if this one is taken
)

func newDemo() *cobra.Command {
	var (
		clients int
		web     bool
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a server with living, silent and vanished clients, and check each verdict",
		Long: `Run a server with living, silent and vanished clients in one process, and check each verdict.

A third of the clients sends heartbeats. A third falls silent. A third dies without a FIN, as a machine does that loses power.
Each reap is printed with its reason and its lateness. At the end a table shows whether each verdict was right. The exit code
is 1 if one was wrong.

The demo ends within 20 seconds: three seconds plus three read timeouts, which are at most 5 seconds. Ctrl-C ends it earlier.
With --web it goes on with new clients until Ctrl-C, and prints the address of a page that shows them.`,
	}
	cmd.Flags().SortFlags = false
	limits := addLimits(cmd, idle.Config{ReadTimeout: 3 * time.Second}, "read-timeout", "tick")
	cmd.Flags().IntVar(&clients, "clients", 30, fmt.Sprintf("`number` of clients, %d to %d, a third of each kind", len(fates), maxDemoClients))
	cmd.Flags().BoolVar(&web, "web", false, "go on until Ctrl-C, and show the clients on a page")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var cfg idle.Config
		if err := limits.Load(&cfg); err != nil {
			return usageError{err}
		}
		complete(&cfg)
		if cfg.ReadTimeout < minDemoTimeout || cfg.ReadTimeout > maxDemoTimeout {
			return usageError{fmt.Errorf("--read-timeout is %v: set %v to %v", cfg.ReadTimeout, minDemoTimeout, maxDemoTimeout)}
		}
		if clients < len(fates) || clients > maxDemoClients {
			return usageError{fmt.Errorf("--clients is %d: set %d to %d", clients, len(fates), maxDemoClients)}
		}
		s := newShow(cmd.OutOrStdout(), cfg, clients)
		s.web = web
		return s.run(cmd.Context())
	}
	return cmd
}

// A show is one run of the demo. It is the handler of its server.
type show struct {
	echo
	cfg     idle.Config
	out     *printer
	clients int // per round
	web     bool

	mu     sync.Mutex
	byAddr map[string]*client // by the address that the server sees; guarded by mu
}

func newShow(out io.Writer, cfg idle.Config, clients int) *show {
	return &show{cfg: cfg, out: &printer{out: out, start: time.Now()}, clients: clients, byAddr: map[string]*client{}}
}

// run runs the demo. It returns an error if a verdict was wrong.
func (s *show) run(ctx context.Context) error {
	serverCtx, stop := context.WithCancel(context.WithoutCancel(ctx)) // outlives the clients
	defer stop()
	started := make(chan struct{})
	cfg := server.Config{
		Addresses: []string{"127.0.0.1:0"}, Handler: s, Idle: s.cfg, OnStarted: func(*server.Server) { close(started) },
	}
	if s.web {
		cfg.Admin = server.Admin{Addr: freeOr(demoPage), Token: rand.Text()}
	}
	srv, err := server.New(cfg)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- srv.Run(serverCtx) }()
	select {
	case <-started:
	case err := <-served:
		return err
	}
	s.out.printf("server on %s, read timeout %v, tick %v; %d clients",
		srv.Addr(), s.cfg.ReadTimeout, srv.Reaper().Config().Tick, s.clients)
	if s.web {
		s.out.printf("the page is at http://%s/#token=%s ; Ctrl-C ends it", srv.AdminAddr(), cfg.Admin.Token)
		err = s.runRounds(ctx, srv)
	} else {
		err = s.runOnce(ctx, srv)
	}
	stop()
	return errors.Join(err, <-served)
}

// runOnce runs one round and prints its table.
func (s *show) runOnce(ctx context.Context, srv *server.Server) error {
	r := newRound(s, s.clients)
	if err := r.run(ctx, srv.Addr(), time.Second); err != nil {
		return err
	}
	if ctx.Err() != nil {
		s.out.printf("interrupted: no verdict")
		return nil
	}
	return r.summary()
}

// runRounds runs rounds until ctx is done. A round begins when all clients of the previous one are
// connected, so that at any time some clients connect, some live and some die.
func (s *show) runRounds(ctx context.Context, srv *server.Server) error {
	var running sync.WaitGroup
	var mu sync.Mutex
	var errs []error // guarded by mu
	spread := 3 * s.cfg.ReadTimeout
	for ctx.Err() == nil {
		running.Go(func() {
			err := s.runRound(ctx, srv, spread)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
		pause(ctx, spread)
	}
	running.Wait()
	s.out.printf("interrupted: no verdict about the clients that are left")
	return errors.Join(errs...)
}

// runRound runs one of several rounds. It gives no verdict if the timeouts were changed meanwhile.
func (s *show) runRound(ctx context.Context, srv *server.Server, spread time.Duration) error {
	r := newRound(s, s.clients)
	reaper := srv.Reaper()
	updates := reaper.Stats().Updates
	if err := r.run(ctx, srv.Addr(), spread); err != nil || ctx.Err() != nil {
		return err
	}
	if reaper.Stats().Updates != updates || reaper.Config().ReadTimeout != s.cfg.ReadTimeout {
		s.out.printf("no verdict about %d clients: timeouts were changed", len(r.clients))
		return nil
	}
	return r.verdict()
}

// freeOr returns an address, with port 0 instead if the address is taken.
func freeOr(addr string) string {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "127.0.0.1:0"
	}
	_ = l.Close()
	return addr
}

// pause waits, and reports whether the time has passed before ctx was done.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// OnClose records when and why the server closed the connection of a client.
func (s *show) OnClose(conn gnet.Conn, err error) gnet.Action {
	now := time.Now()
	s.mu.Lock()
	c := s.byAddr[conn.RemoteAddr().String()]
	counts := c != nil && !c.round.over
	if counts {
		c.closedAt, c.reason = now, err
	}
	s.mu.Unlock()
	if !counts {
		return gnet.None
	}
	var reaped *idle.ReapError
	if errors.As(err, &reaped) {
		s.out.printf("client %d (%s) reaped: %v for %.3fs, %v late",
			c.number, c.fate, reaped.Reason, reaped.Lasted.Seconds(), reaped.Late.Round(time.Millisecond))
	} else {
		s.out.printf("client %d (%s) closed: %v", c.number, c.fate, err)
	}
	return gnet.None
}
