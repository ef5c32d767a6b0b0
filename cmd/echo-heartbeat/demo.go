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
	maxDemoTimeout = 5 * time.Second // so that the show ends within 20 s
	maxDemoClients = 3000
	demoPage       = "127.0.0.1:7080" // if it is free
)

func newDemo() *cobra.Command {
	var (
		flags   idleFlags
		clients int
		web     bool
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show it all in one process: living, silent and vanished clients, and what becomes of them",
		Long: `Show it all in one process: a server, clients that send heartbeats, clients that fall silent, and clients that die
without a FIN, as a machine does that loses power. Each reap is printed as it happens, with its reason and how late it
was. At the end a table tells whether each verdict was right; if one was not, the exit code is 1.

It ends by itself within 20 seconds, three seconds plus three read timeouts, of 5 seconds at most. Ctrl-C ends it before.
With --web it goes on with new clients until Ctrl-C, and prints the address of a page that shows them come, beat, fall silent and go.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := flags.config(cmd)
			if err != nil {
				return err
			}
			if cfg.ReadTimeout > maxDemoTimeout {
				return usageError{fmt.Errorf("--read-timeout is %v: set at most %v, or the show takes too long",
					cfg.ReadTimeout, maxDemoTimeout)}
			}
			if clients < len(fates) || clients > maxDemoClients {
				return usageError{fmt.Errorf("--clients is %d: set %d to %d", clients, len(fates), maxDemoClients)}
			}
			s := newShow(cmd.OutOrStdout(), cfg, clients)
			s.web = web
			return s.run(cmd.Context())
		},
	}
	cmd.Flags().SortFlags = false
	flags.add(cmd, 3*time.Second)
	cmd.Flags().IntVar(&clients, "clients", 30, fmt.Sprintf("number of clients, %d to %d, a third of each kind", len(fates), maxDemoClients))
	cmd.Flags().BoolVar(&web, "web", false, "go on until Ctrl-C, and show it on a page")
	return cmd
}

// A show is one run of the demo. It is the handler of its server.
type show struct {
	echo
	cfg     idle.Config
	out     *printer
	clients int // of each round
	web     bool

	mu     sync.Mutex
	byAddr map[string]*client // by the address that the server sees; guarded by mu
}

func newShow(out io.Writer, cfg idle.Config, clients int) *show {
	return &show{cfg: cfg, out: &printer{out: out, start: time.Now()}, clients: clients, byAddr: map[string]*client{}}
}

// run shows it, and returns an error if a verdict was wrong.
func (s *show) run(ctx context.Context) error {
	serverCtx, stop := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the clients
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
		err = s.playOn(ctx, srv)
	} else {
		err = s.playOnce(ctx, srv)
	}
	stop()
	return errors.Join(err, <-served)
}

// playOnce plays one round, and prints the table.
func (s *show) playOnce(ctx context.Context, srv *server.Server) error {
	r := newRound(s, s.clients)
	if err := r.play(ctx, srv.Addr(), time.Second); err != nil {
		return err
	}
	if ctx.Err() != nil {
		s.out.printf("interrupted: no verdict")
		return nil
	}
	return r.summary()
}

// playOn plays rounds until ctx is done. One begins when all clients of the one before have come, so that there are always some that
// come, some that live and some that go.
func (s *show) playOn(ctx context.Context, srv *server.Server) error {
	var playing sync.WaitGroup
	var mu sync.Mutex
	var errs []error // guarded by mu
	spread := 3 * s.cfg.ReadTimeout
	for ctx.Err() == nil {
		playing.Go(func() {
			err := s.playOne(ctx, srv, spread)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
		pause(ctx, spread)
	}
	playing.Wait()
	s.out.printf("interrupted: no verdict about those that were still there")
	return errors.Join(errs...)
}

// playOne plays a round of several.
func (s *show) playOne(ctx context.Context, srv *server.Server, spread time.Duration) error {
	r := newRound(s, s.clients)
	before := srv.Reaper().Stats().Updates
	if err := r.play(ctx, srv.Addr(), spread); err != nil || ctx.Err() != nil {
		return err
	}
	if now := srv.Reaper(); now.Stats().Updates != before || now.Config().ReadTimeout != s.cfg.ReadTimeout {
		s.out.printf("no verdict about %d clients: timeouts were changed", len(r.clients))
		return nil
	}
	return r.verdict()
}

// freeOr returns an address, with port 0 if somebody listens on it.
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

// OnClose is where the server sees a client go.
func (s *show) OnClose(conn gnet.Conn, err error) gnet.Action {
	now := time.Now()
	s.mu.Lock()
	c := s.byAddr[conn.RemoteAddr().String()]
	verdict := c != nil && !c.round.over
	if verdict {
		c.closedAt, c.reason = now, err
	}
	s.mu.Unlock()
	if !verdict {
		return gnet.None
	}
	if reaped, ok := errors.AsType[*idle.ReapError](err); ok {
		s.out.printf("client %d (%s) reaped: %v for %.3fs, %v late",
			c.number, c.fate, reaped.Reason, reaped.Lasted.Seconds(), reaped.Late.Round(time.Millisecond))
	} else {
		s.out.printf("client %d (%s) closed: %v", c.number, c.fate, err)
	}
	return gnet.None
}
