package processes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Package is the server to build and launch.
const Package = "github.com/idlewheel/idlewheel/cmd/echo-heartbeat"

// Servers are the launched processes of an echo server. Not safe for concurrent use.
type Servers struct {
	Pids    []int    // their IDs
	Targets []string // addresses of the listeners
	dir     string   // of the binary
	all     []*server
}

type server struct {
	child
	addr   string   // of its listener
	output []string // lines after the first, complete once it has ended
}

// A Launch describes the servers to launch.
type Launch struct {
	Count     int
	Binary    string   // if empty, Package is built
	Args      []string // of serve, without the address
	PortsEach bool     // each server has a port of its own; otherwise all share one
}

// Start builds the server and starts l.Count processes of it. The caller must call Stop, also after
// an error.
func (s *Servers) Start(ctx context.Context, l Launch) error {
	if l.Binary == "" {
		var err error
		if s.dir, err = os.MkdirTemp("", "loadtest"); err != nil {
			return err
		}
		l.Binary = filepath.Join(s.dir, "echo-heartbeat")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", l.Binary, Package).CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w: %s: run it in a clone of the repository, or name a --server or a --target",
				Package, err, bytes.TrimSpace(out))
		}
	}
	if l.Count > 1 && !l.PortsEach {
		l.Args = append(l.Args, "--share-port")
	}
	addr := "127.0.0.1:0"
	for i := range l.Count {
		p, cmd := &server{}, exec.Command(l.Binary, append([]string{"serve", "--addr", addr}, l.Args...)...)
		cmd.Stderr = &p.errs
		if err := p.start(cmd, p.read); err != nil {
			return fmt.Errorf("starting server %d of %d: %w", i+1, l.Count, err)
		}
		s.all = append(s.all, p)
		s.Pids = append(s.Pids, p.cmd.Process.Pid)
		if !l.PortsEach {
			addr = p.addr
		}
		if i == 0 || l.PortsEach {
			s.Targets = append(s.Targets, p.addr)
		}
	}
	return nil
}

// read handles a line of output. The first one says where the server listens.
func (p *server) read(line []byte) error {
	if p.addr != "" {
		p.output = append(p.output, string(line))
		return nil
	}
	at, found := strings.CutPrefix(string(line), "listening on ")
	p.addr, _, _ = strings.Cut(at, ",")
	if _, err := netip.ParseAddrPort(p.addr); err != nil || !found {
		return fmt.Errorf("no line about its listener: %s", line)
	}
	return nil
}

// Died returns an error if a server has ended.
func (s *Servers) Died() error {
	for i, p := range s.all {
		if p.ended() {
			return fmt.Errorf("server %d of %d ended (%v): %s", i+1, len(s.all), p.err, p.errs)
		}
	}
	return nil
}

// Stop sends SIGTERM to the servers and returns the output since they began to listen. Servers
// still running after the given time are killed. The error tells of those, and of servers that
// ended with an exit status.
func (s *Servers) Stop(within time.Duration) (said []string, err error) {
	for _, p := range s.all {
		_ = p.cmd.Process.Signal(syscall.SIGCONT) // a stopped process does not handle SIGTERM
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		defer time.AfterFunc(within, p.kill).Stop()
	}
	for i, p := range s.all {
		<-p.done
		state := p.cmd.ProcessState
		if status, ok := state.Sys().(syscall.WaitStatus); ok && (state.ExitCode() > 0 || status.Signal() == syscall.SIGKILL) {
			err = errors.Join(err, fmt.Errorf("server %d of %d was stopped and ended with %v: %s", i+1, len(s.all), state, p.errs))
		}
		said = append(said, p.output...)
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
	return said, err
}

// A tail keeps the last tailSize bytes written to it.
type tail []byte

const tailSize = 2000

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	*t = (*t)[max(0, len(*t)-tailSize):]
	return len(p), nil
}

func (t tail) String() string { return strings.TrimSpace(string(t)) }
