package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
)

const (
	maxDemoTimeout = 5 * time.Second // so that the show ends within 20 s
	maxDemoClients = 3000
)

func newDemo() *cobra.Command {
	var (
		flags   idleFlags
		clients int
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show it all in one process: living, silent and vanished clients, and what becomes of them",
		Long: `Show it all in one process: a server, clients that send heartbeats, clients that fall silent, and clients that die
without a FIN, as a machine does that loses power. Each reap is printed as it happens, with its reason and how late it
was. At the end a table tells whether each verdict was right; if one was not, the exit code is 1.

It ends by itself within 20 seconds, three seconds plus three read timeouts, of 5 seconds at most. Ctrl-C ends it before.`,
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
			return newShow(cmd.OutOrStdout(), cfg, clients).run(cmd.Context())
		},
	}
	cmd.Flags().SortFlags = false
	flags.add(cmd, 3*time.Second)
	cmd.Flags().IntVar(&clients, "clients", 30, fmt.Sprintf("number of clients, %d to %d, a third of each kind", len(fates), maxDemoClients))
	return cmd
}

// A fate is what becomes of a client.
type fate uint8

const (
	lives    fate = iota // sends heartbeats until the end
	silent               // sends a greeting, then nothing
	vanishes             // sends heartbeats, then dies without a FIN
)

var fates = []fate{lives, silent, vanishes}

func (f fate) String() string {
	return [...]string{"sends heartbeats", "falls silent", "dies without FIN"}[f]
}

// A show is one run of the demo. It is the handler of its server.
type show struct {
	echo
	cfg     idle.Config
	out     *printer
	clients []*client

	mu     sync.Mutex
	byAddr map[string]*client // by the address that the server sees; guarded by mu
	over   bool               // what is closed from now on is no verdict; guarded by mu
}

// A client is one of the connections of a show.
type client struct {
	number int
	fate   fate

	conn     net.Conn
	mu       sync.Mutex
	lastSent time.Time // just before it was sent; guarded by mu

	// What the server did to it; guarded by show.mu.
	closedAt time.Time // zero if it was not closed
	reason   error
}

func newShow(out io.Writer, cfg idle.Config, clients int) *show {
	s := &show{cfg: cfg, out: &printer{out: out, start: time.Now()}, byAddr: map[string]*client{}}
	for i := range clients {
		s.clients = append(s.clients, &client{number: i + 1, fate: fates[i%len(fates)]})
	}
	return s
}

// run shows it, and returns an error if a verdict was wrong.
func (s *show) run(ctx context.Context) error {
	serverCtx, stop := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the clients
	defer stop()
	started := make(chan net.Addr, 1)
	var tick time.Duration
	served := make(chan error, 1)
	go func() {
		served <- server.Run(serverCtx, server.Config{
			Addr: "127.0.0.1:0", Handler: s, Idle: s.cfg,
			Started: func(srv *server.Server) {
				tick = srv.Reaper().Config().Tick
				started <- srv.Addr()
			},
		})
	}()
	var addr net.Addr
	select {
	case addr = <-started:
	case err := <-served:
		return err
	}
	s.out.printf("server on %s, read timeout %v, tick %v; %d clients", addr, s.cfg.ReadTimeout, tick, len(s.clients))
	err := s.perform(ctx, addr)
	stop()
	if err := errors.Join(err, <-served); err != nil {
		return err
	}
	if ctx.Err() != nil {
		s.out.printf("interrupted: no verdict")
		return nil
	}
	return s.summary()
}

// perform lets the clients come, live and die. It returns when the last of the dead should be gone, and the living have
// outlived them.
func (s *show) perform(ctx context.Context, addr net.Addr) error {
	until := s.out.start.Add(3*s.cfg.ReadTimeout + 3*time.Second)
	acting, end := context.WithCancel(context.WithoutCancel(ctx)) // clients leave when the show is over, not before
	var actors sync.WaitGroup
	defer func() {
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
		end()
		actors.Wait()
	}()
	for i, c := range s.clients {
		if !pause(ctx, time.Until(s.out.start.Add(time.Second*time.Duration(i)/time.Duration(len(s.clients))))) {
			return nil
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, addr.Network(), addr.String())
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("client %d: %w", c.number, err)
		}
		c.conn = conn
		s.mu.Lock()
		s.byAddr[conn.LocalAddr().String()] = c
		s.mu.Unlock()
		actors.Go(func() { c.act(acting, s) })
	}
	pause(ctx, time.Until(until))
	return nil
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

// act plays a client until ctx is done.
func (c *client) act(ctx context.Context, s *show) {
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(io.Discard, c.conn) })
	defer reading.Wait()
	defer c.conn.Close()

	if !c.send("hello\n") {
		return
	}
	beats := 0
	for pause(ctx, s.cfg.ReadTimeout/3) {
		switch {
		case c.fate == silent:
			continue
		case c.fate == vanishes && beats == 3:
			if err := vanish(c.conn); err != nil {
				s.out.printf("client %d cannot die without FIN, so it freezes instead: %v", c.number, err)
				<-ctx.Done()
			}
			return
		}
		beats++
		if !c.send(ping + "\n") {
			return
		}
	}
}

func (c *client) send(msg string) bool {
	c.mu.Lock()
	c.lastSent = time.Now()
	c.mu.Unlock()
	_, err := c.conn.Write([]byte(msg))
	return err == nil
}

// OnClose is where the server sees a client go.
func (s *show) OnClose(conn gnet.Conn, err error) gnet.Action {
	now := time.Now()
	s.mu.Lock()
	c := s.byAddr[conn.RemoteAddr().String()]
	verdict := c != nil && !s.over
	if verdict {
		c.closedAt, c.reason = now, err
	}
	s.mu.Unlock()
	if !verdict {
		return gnet.None
	}
	if reaped, ok := errors.AsType[*idle.ReapError](err); ok {
		s.out.printf("client %d (%s) reaped: %v for %.3fs, %v late",
			c.number, c.fate, reaped.Kind, reaped.Lasted.Seconds(), reaped.Late.Round(time.Millisecond))
	} else {
		s.out.printf("client %d (%s) closed: %v", c.number, c.fate, err)
	}
	return gnet.None
}

// mistake says what was wrong with the verdict on a client, nothing if it was right. The show is over.
func (s *show) mistake(c *client) string {
	silence := c.closedAt.Sub(c.lastSent)
	switch {
	case c.fate == lives && !c.closedAt.IsZero():
		return "a living client was cut off"
	case c.fate == lives:
		return ""
	case c.closedAt.IsZero():
		return "a dead client was kept"
	case !errors.Is(c.reason, idle.ErrReadIdle):
		return fmt.Sprintf("closed for another reason: %v", c.reason)
	case silence < s.cfg.ReadTimeout:
		return fmt.Sprintf("reaped too early, after %v", silence)
	default:
		return ""
	}
}

// summary prints the table, and returns an error if a verdict was wrong.
func (s *show) summary() error {
	mistakes := 0
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	fmt.Fprintln(s.out.out)
	w := tabwriter.NewWriter(s.out.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "client\tnumber\tshould\treaped\twrong\tlateness min / mean / max")
	for _, f := range fates {
		row := struct{ n, reaped, wrong int }{}
		var least, sum, most time.Duration
		for _, c := range s.clients {
			if c.fate != f {
				continue
			}
			row.n++
			if s.mistake(c) != "" {
				row.wrong++
			}
			if r, ok := errors.AsType[*idle.ReapError](c.reason); ok {
				if row.reaped == 0 || r.Late < least {
					least = r.Late
				}
				sum, most = sum+r.Late, max(most, r.Late)
				row.reaped++
			}
		}
		should, late := "be reaped", "-"
		if f == lives {
			should = "stay"
		}
		if row.reaped > 0 {
			mean := sum / time.Duration(row.reaped)
			late = fmt.Sprintf("%v / %v / %v",
				least.Round(time.Millisecond), mean.Round(time.Millisecond), most.Round(time.Millisecond))
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%s\n", f, row.n, should, row.reaped, row.wrong, late)
		mistakes += row.wrong
	}
	_ = w.Flush()
	if mistakes == 0 {
		fmt.Fprintf(s.out.out, "\nall %d verdicts were right\n", len(s.clients))
		return nil
	}
	for _, c := range s.clients {
		if m := s.mistake(c); m != "" {
			fmt.Fprintf(s.out.out, "client %d (%s): %s\n", c.number, c.fate, m)
		}
	}
	return fmt.Errorf("%d of %d verdicts were wrong", mistakes, len(s.clients))
}
