package processes

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Package is the server to build and launch.
const Package = "github.com/idlewheel/idlewheel/cmd/echo-heartbeat"

// Servers are the launched processes of an echo server. Not safe for concurrent use.
type Servers struct {
	Targets []string // addresses of the listeners
	dir     string   // of the binary
	all     []*server
}

type server struct {
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	errs   *tail
	output []string // lines after the first, complete once exited has a value
	exited chan error
}

// A Launch describes the servers to launch.
type Launch struct {
	Count     int
	Binary    string   // if empty, Package is built
	Args      []string // of serve, without the address
	PortsEach bool     // each server has a port of its own; otherwise all share one
}

// listenTimeout limits the time a server takes to listen.
const listenTimeout = 20 * time.Second

// StartServers builds the server and starts l.Count processes of it. The caller must call Stop.
func StartServers(ctx context.Context, l Launch) (*Servers, error) {
	s := &Servers{}
	if l.Binary == "" {
		var err error
		if s.dir, err = os.MkdirTemp("", "loadtest"); err != nil {
			return nil, err
		}
		l.Binary = filepath.Join(s.dir, "echo-heartbeat")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", l.Binary, Package).CombinedOutput(); err != nil {
			s.Stop(0)
			return nil, fmt.Errorf("building %s: %w: %s: run it in a clone of the repository, or name a --server or a --target",
				Package, err, bytes.TrimSpace(out))
		}
	}
	addr := "127.0.0.1:0"
	for range l.Count {
		at, err := s.start(l, addr)
		if err != nil {
			s.Stop(0)
			return nil, fmt.Errorf("starting server %d of %d: %w", len(s.all)+1, l.Count, err)
		}
		if !l.PortsEach {
			addr = at
		}
		if len(s.Targets) == 0 || l.PortsEach {
			s.Targets = append(s.Targets, at)
		}
	}
	return s, nil
}

var listening = regexp.MustCompile(`^listening on (\S+),`)

// start starts a server and waits until it listens.
func (s *Servers) start(l Launch, addr string) (at string, err error) {
	args := append([]string{"serve", "--addr", addr}, l.Args...)
	if l.Count > 1 && !l.PortsEach {
		args = append(args, "--share-port")
	}
	p := &server{cmd: exec.Command(l.Binary, args...), errs: &tail{}, exited: make(chan error, 1)}
	p.cmd.Stderr = p.errs
	p.cmd.SysProcAttr = childAttr()
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := p.cmd.Start(); err != nil {
		return "", err
	}
	p.lines = bufio.NewScanner(out)
	late := time.AfterFunc(listenTimeout, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if p.lines.Scan() {
		if found := listening.FindStringSubmatch(p.lines.Text()); found != nil {
			s.all = append(s.all, p)
			go p.listen()
			return found[1], nil
		}
	}
	_ = p.cmd.Process.Kill()
	return "", errors.Join(fmt.Errorf("no line about its listener: %s %s", p.lines.Text(), p.errs), p.cmd.Wait())
}

// listen collects the output of a server until it ends.
func (p *server) listen() {
	for p.lines.Scan() {
		p.output = append(p.output, p.lines.Text())
	}
	p.exited <- p.cmd.Wait()
}

// Pids returns the IDs of the servers.
func (s *Servers) Pids() (pids []int) {
	if s == nil {
		return nil
	}
	for _, p := range s.all {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}

// Died returns an error if a server has ended.
func (s *Servers) Died() error {
	if s == nil {
		return nil
	}
	for i, p := range s.all {
		select {
		case err := <-p.exited:
			p.exited <- err
			return fmt.Errorf("server %d of %d ended (%v): %s", i+1, len(s.all), err, p.errs)
		default:
		}
	}
	return nil
}

// Stop sends SIGTERM to the servers and returns the output since they began to listen. Servers
// still running after the given time are killed. The error tells of those, and of servers that
// ended with an exit status.
func (s *Servers) Stop(within time.Duration) (said []string, err error) {
	if s == nil {
		return nil, nil
	}
	for _, p := range s.all {
		_ = p.cmd.Process.Signal(syscall.SIGCONT) // a stopped process does not handle SIGTERM
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	kill := time.AfterFunc(within, func() {
		for _, p := range s.all {
			_ = p.cmd.Process.Kill()
		}
	})
	defer kill.Stop()
	for i, p := range s.all {
		<-p.exited
		p.exited <- nil
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

// A tail keeps the last tailSize bytes written to it. Safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

const tailSize = 2000 // bytes

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
