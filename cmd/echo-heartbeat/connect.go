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
	"github.com/idlewheel/idlewheel/reap"
)

// maxMissed is the number of unanswered heartbeats after which the client takes the server for
// dead.
const maxMissed = 2

func newConnect() *cobra.Command {
	var (
		addr      string
		heartbeat time.Duration
		silent    bool
	)
	cmd := &cobra.Command{
		Use:   "connect",
		Short: "Connect to the server, send heartbeats and print the answers",
		Long: `Connect to the server, send heartbeats and print the answers.

The client uses the same middleware as the server. When the server sends nothing for the heartbeat interval, the client sends a
line PING. After two unanswered heartbeats it closes the connection. While the server sends, the client needs no heartbeats.
With --silent the client sends nothing, and the server reaps it.

Ctrl-C ends the client. It ends as well when the server closes the connection.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if heartbeat < time.Millisecond {
				return usageError{fmt.Errorf("--heartbeat is %v: set at least 1ms", heartbeat)}
			}
			return connect(cmd.Context(), cmd.OutOrStdout(), addr, heartbeat, silent)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:7000", "address of the server: host:port, or unix:///path")
	cmd.Flags().DurationVar(&heartbeat, "heartbeat", 20*time.Second,
		"send a heartbeat when the server sends nothing for this `duration`, the first one up to a fifth later")
	cmd.Flags().BoolVar(&silent, "silent", false, "send no heartbeats")
	return cmd
}

func connect(ctx context.Context, out io.Writer, addr string, heartbeat time.Duration, silent bool) (err error) {
	h := &heartbeatClient{out: &printer{out: out, start: time.Now()}, silent: silent, closed: make(chan error, 1)}
	handler, err := h.handler(heartbeat)
	if err != nil {
		return usageError{err}
	}
	network, at := "tcp", strings.TrimPrefix(addr, "tcp://")
	if path, ok := strings.CutPrefix(addr, "unix://"); ok {
		network, at = "unix", path
		if path == "" {
			return usageError{fmt.Errorf("--addr %q: no path", addr)}
		}
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
		if errors.Is(err, reap.HeartbeatTimeout) {
			return fmt.Errorf("the server is dead: %w", err)
		}
		h.out.printf("closed by the server")
	case <-ctx.Done():
		h.out.printf("interrupted")
	}
	return nil
}

// A heartbeatClient sends heartbeats to a silent server, and prints what it receives.
type heartbeatClient struct {
	gnet.BuiltinEventEngine
	out    *printer
	silent bool
	closed chan error
}

func (h *heartbeatClient) OnTraffic(c gnet.Conn) gnet.Action {
	b, _ := c.Next(-1)
	h.out.printf("received %q", b)
	return gnet.None
}

// handler returns the client inside a Reaper that sends the heartbeats, or the client alone if it
// is silent.
func (h *heartbeatClient) handler(heartbeat time.Duration) (gnet.EventHandler, error) {
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

func (h *heartbeatClient) OnClose(_ gnet.Conn, err error) gnet.Action {
	select {
	case h.closed <- err:
	default: // connect has returned and stops the client
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

// silentLog is a logger for gnet that drops all lines.
type silentLog struct{}

func (silentLog) Debugf(string, ...any) {}
func (silentLog) Infof(string, ...any)  {}
func (silentLog) Warnf(string, ...any)  {}
func (silentLog) Errorf(string, ...any) {}
func (silentLog) Fatalf(string, ...any) {}
