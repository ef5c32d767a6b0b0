package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/idle"
)

// maxMissed is how many heartbeats in a row may stay without an answer.
const maxMissed = 2

func newConnect() *cobra.Command {
	var (
		addr      string
		heartbeat time.Duration
		silent    bool
	)
	cmd := &cobra.Command{
		Use:   "connect",
		Short: "Connect to the server, send heartbeats and print what comes back",
		Long: `Connect to the server, send heartbeats and print what comes back.

The client runs through the same middleware as the server: when nothing came from the server for the heartbeat interval,
it sends a line PING; when two of them in a row stay without an answer, it gives the server up. A server that talks all the
time hears nothing from it. With --silent it sends nothing, so that one can see the server reap it.

Ctrl-C ends it, and so does the server by closing the connection.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if heartbeat < time.Millisecond {
				return usageError{fmt.Errorf("--heartbeat is %v: set at least 1ms", heartbeat)}
			}
			return connect(cmd.Context(), cmd.OutOrStdout(), addr, heartbeat, silent)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:7000", "address of the server: host:port, or unix:///path")
	cmd.Flags().DurationVar(&heartbeat, "heartbeat", 20*time.Second, "send a heartbeat when nothing came for this long, the first up to a fifth later")
	cmd.Flags().BoolVar(&silent, "silent", false, "send no heartbeats, to be reaped")
	return cmd
}

func connect(ctx context.Context, out io.Writer, addr string, heartbeat time.Duration, silent bool) (err error) {
	h := &beater{out: &printer{out: out, start: time.Now()}, silent: silent, closed: make(chan error, 1)}
	handler, err := h.handler(heartbeat)
	if err != nil {
		return usageError{errors.New(strings.ReplaceAll(err.Error(), "Config.Heartbeat.Interval", "--heartbeat"))}
	}
	network, at := "tcp", strings.TrimPrefix(addr, "tcp://")
	if path, ok := strings.CutPrefix(addr, "unix://"); ok {
		network, at = "unix", path
	} else if _, _, err := net.SplitHostPort(at); err != nil {
		return usageError{fmt.Errorf("--addr %q: %w", addr, err)}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, at)
	if err != nil {
		return fmt.Errorf("cannot connect, is the server running? %w", err)
	}
	client, err := gnet.NewClient(handler, gnet.WithLogger(silentLog{}))
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	if err := client.Start(); err != nil {
		return errors.Join(err, conn.Close())
	}
	defer func() { err = errors.Join(err, client.Stop()) }()
	h.out.printf("connected to %s", addr)
	if _, err := client.Enroll(conn); err != nil {
		return err
	}
	select {
	case err := <-h.closed:
		if errors.Is(err, idle.HeartbeatTimeout) {
			return fmt.Errorf("the server is dead: %w", err)
		}
		h.out.printf("closed by the server")
	case <-ctx.Done():
		h.out.printf("interrupted")
	}
	return nil
}

// A beater sends heartbeats when it hears nothing, and prints what it hears.
type beater struct {
	gnet.BuiltinEventEngine
	out    *printer
	silent bool
	closed chan error
}

func (h *beater) OnTraffic(c gnet.Conn) gnet.Action {
	b, _ := c.Next(-1)
	h.out.printf("received %q", b)
	return gnet.None
}

// handler returns the beater with a Reaper around it that sends its heartbeats, if it is to send any.
func (h *beater) handler(heartbeat time.Duration) (gnet.EventHandler, error) {
	if h.silent {
		return h, nil
	}
	return idle.Middleware(h, idle.Config{Heartbeat: idle.Heartbeat{
		Interval: heartbeat, MaxMissed: maxMissed, Ping: func(gnet.Conn) []byte {
			h.out.printf("sending %s", ping)
			return []byte(ping + "\n")
		},
	}})
}

func (h *beater) OnClose(_ gnet.Conn, err error) gnet.Action {
	select {
	case h.closed <- err:
	default: // when the client stops
	}
	return gnet.None
}

// A printer prints lines with the time since its start. Safe for concurrent use.
type printer struct {
	start time.Time

	mu  sync.Mutex
	out io.Writer // guarded by mu
}

func (p *printer) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%7.3fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// silentLog keeps gnet's log away from the terminal.
type silentLog struct{}

func (silentLog) Debugf(string, ...any) {}
func (silentLog) Infof(string, ...any)  {}
func (silentLog) Warnf(string, ...any)  {}
func (silentLog) Errorf(string, ...any) {}
func (silentLog) Fatalf(string, ...any) {}
